package proof

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

// stage is where a controller's stream can be reached through the API server: a pod that holds the Lease, on a kubelet that
// forwards to this machine's loopback, where the controller really is.
type stage struct {
	*lab
	port string
}

// newStage starts it. The machine ends with the test.
func (l *lab) newStage(name string) *stage {
	l.Helper()
	_, err := l.cluster.AddNode(l.Context(), livecluster.Node{Name: name})
	l.must(err)
	l.Cleanup(func() { _ = l.cluster.KillNode(context.Background(), name) })
	pod, err := l.client.CoreV1().Pods(system).Create(l.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: name, ServiceAccountName: "rollcall-controller", Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}, metav1.CreateOptions{})
	l.must(err)
	l.dropPodLater(system, name)
	l.eventually("the pod runs", func(ctx context.Context) (bool, error) {
		pod, err := l.client.CoreV1().Pods(system).Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	l.lease(pod.Name)
	ports, err := livecluster.FreePorts(1)
	l.must(err)
	port := strconv.Itoa(ports[0])
	p, err := l.programs().Start(liverollcall.Controller, "controller-in-"+name, "--kubeconfig", l.cluster.Kubeconfig(), "--leader-elect=false", "--dry-run",
		"--health-address=", "--stream-address=127.0.0.1:"+port)
	l.must(err)
	l.Cleanup(p.Stop)
	return &stage{l, port}
}

// lease makes the pod the holder of the controller's Lease.
func (l *lab) lease(pod string) {
	l.Helper()
	holder, leases := pod+"_proof", l.client.CoordinationV1().Leases(system)
	if err := leases.Delete(l.Context(), "rollcall-controller", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		l.must(err)
	}
	_, err := leases.Create(l.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "rollcall-controller"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
	l.must(err)
}

// question is the command line that reads the stream once.
func (s *stage) question() []string {
	return []string{"stream", "--once", "-o", "json", "--stream-port", s.port}
}

// The snapshot comes through the API server to a person with the viewer's role, and not to one without.
func TestStreamIsBehindTheViewersRole(t *testing.T) {
	l := newLab(t, withController)
	l.install(person())
	s := l.newStage("proof-stream")
	o := &occasion{lab: l}
	_, kubeconfig := l.through(l.unbound("default", "person"))
	l.eventually("a snapshot", func(context.Context) (bool, error) {
		said := o.ask(kubeconfig, s.question()...)
		if _, found := lineWith(said, []string{`"server":`, `"boot"`}); !found {
			return false, fmt.Errorf("it says:\n%s", said)
		}
		return true, nil
	})
	_, nobody := l.through(l.unbound("default", "default"))
	said := o.ask(nobody, s.question()...)
	if line, found := lineWith(said, []string{"may not", "leases"}); !found {
		t.Errorf("without a role it says:\n%s", said)
	} else {
		t.Log(line)
	}
}
