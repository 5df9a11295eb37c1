package karpenter_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Between the verdict and the write of the marker the pod is replaced by another of its name, on a healthy node:
//
//  1. the controller decides to mark race, UID 1
//  2. somebody deletes it and makes race, UID 2
//  3. the controller's patch arrives
//
// The test does 2 within 3, before the patch is sent.
func TestRecreatedPodIsNotMarked(t *testing.T) {
	l := newLab(t)
	tainted, healthy := l.apiNode(), l.apiNode()
	l.barePod("race", tainted)
	var (
		once     sync.Once
		answer   int
		replaced error
	)
	r := l.startController(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			mine := request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/pods/race/status")
			if mine {
				once.Do(func() { replaced = l.replace("race", healthy) })
			}
			response, err := next.RoundTrip(request)
			if mine && err == nil {
				answer = response.StatusCode
			}
			return response, err
		})
	})
	l.taint(tainted, true)
	l.settled()
	if text, marked := l.mark("race"); marked {
		t.Errorf("the new pod is marked: %s", text)
	}
	r.stop()
	l.must(replaced)
	if answer != http.StatusUnprocessableEntity {
		t.Errorf("the API server answered %d to a patch for a former UID, want 422", answer)
	}
}

// replace deletes a pod at once and makes another of its name on the node.
func (l *lab) replace(name, node string) error {
	zero := int64(0)
	pods := l.client.CoreV1().Pods(l.namespace)
	if err := pods.Delete(l.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		return err
	}
	_, err := pods.Create(l.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec(node)}, metav1.CreateOptions{})
	return err
}

// A taint that comes and goes: the end is right, and no more is written than flipped.
func TestFlappingTaint(t *testing.T) {
	const flips = 100
	l := newLab(t)
	node := l.apiNode()
	l.barePod("bare", node)
	r := l.startController(nil)
	for i := range flips {
		l.taint(node, i%2 == 0)
	}
	l.waitMark("bare", false)
	l.taint(node, true) // one more, so that both ends are seen
	l.waitMark("bare", true)
	before := l.writes(r)
	l.settled()
	after := l.writes(r)
	if got := before["patch pods/status"]; got > flips+1 {
		t.Errorf("%d writes of markers for %d flips", got, flips+1)
	}
	if got := after["create events"]; got > 10 {
		t.Errorf("%d Events: a flapping taint must not flood", got)
	}
	t.Logf("%d flips: %v", flips+1, before)
}

const controlPlanePod = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: kube-system, labels: {component: %[1]s, tier: control-plane}}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  containers: [{name: %[1]s, image: "i:1", resources: {requests: {cpu: 10m}}}]
`

// The static pods of a control plane, run by a real kubelet from its manifest directory, are never marked.
func TestStaticPodsAreNeverMarked(t *testing.T) {
	l := newLab(t)
	name := l.namespace + "-m"
	machine, err := l.cluster.AddNode(t.Context(), livecluster.Node{Name: name, CPU: 2, Memory: "2Gi"})
	l.must(err)
	t.Cleanup(func() {
		_ = l.cluster.KillNode(context.Background(), name)
		_ = l.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	statics := []string{"kube-apiserver", "kube-scheduler", "kube-controller-manager"}
	for _, static := range statics {
		manifest := fmt.Sprintf(controlPlanePod, static)
		l.must(os.WriteFile(filepath.Join(machine.StaticPods, static+".yaml"), []byte(manifest), 0o600))
	}
	l.barePod("bare", name)
	mirror := func(ctx context.Context, static string) (*corev1.Pod, error) {
		return l.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, static+"-"+name, metav1.GetOptions{})
	}
	for _, static := range statics {
		l.eventually("mirror pod of "+static, func(ctx context.Context) (bool, error) {
			pod, err := mirror(ctx, static)
			return err == nil && pod.Status.Phase == corev1.PodRunning, nil
		})
	}
	watched, err := l.client.CoreV1().Pods(metav1.NamespaceSystem).Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	l.must(err)
	defer watched.Stop()

	l.startController(nil)
	l.taint(name, true)
	l.waitMark("bare", true)
	l.taint(name, false)
	l.waitMark("bare", false)
	l.settled()
	for {
		select {
		case event := <-watched.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Annotations[domain.AtRisk] != "" {
				t.Errorf("static pod %s was marked: %s", pod.Name, pod.Annotations[domain.AtRisk])
			}
			continue
		case <-time.After(time.Second):
		}
		return
	}
}
