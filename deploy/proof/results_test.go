package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/readiness"
)

// machine is the node of this file, with a real kubelet.
const machine = "proof-machine"

// Both jobs from end to end under the chart's identities, beside a real kubelet, scheduler and controllers: a new node is held
// until its static pods are mirrored and released then; of the pods on it the bare one is marked when the node is taken back,
// no other is, and nothing stays marked when that is over. A person sees the same. No request of anybody is refused.
func TestBothJobsUnderTheseIdentities(t *testing.T) {
	l := newLab(t, `
controller: {releaseTaint: true}
rbac: {viewers: [{kind: ServiceAccount, name: person, namespace: default}]}
`)
	l.install(person())
	m, err := l.cluster.AddNode(t.Context(), livecluster.Node{
		Name: machine, BootID: boot, Taints: []string{readiness.TaintKey + "=pending:NoSchedule"},
	})
	l.must(err)
	t.Cleanup(func() { _ = l.cluster.KillNode(context.Background(), machine) })
	o := &occasion{lab: l, namespace: "proof-jobs"}
	l.makeNamespace(o.namespace)
	l.must(os.WriteFile(filepath.Join(m.StaticPods, "proxy.yaml"), []byte(
		"apiVersion: v1\nkind: Pod\nmetadata: {name: proxy, namespace: proof-late}\nspec: {containers: [{name: c, image: \"i:1\"}]}\n"), 0o600))

	agentDoor, agent := l.through(l.bound(system, "rollcall-agent", machine))
	l.startBeside(m, agent)
	controllerDoor, controller := l.through(l.bound(system, "rollcall-controller", home))
	o.startController(controller, "--release-taint")
	l.condition(machine, corev1.ConditionFalse, readiness.MirrorMissing, true)
	l.makeNamespace("proof-late")
	l.condition(machine, corev1.ConditionTrue, readiness.AllMirrored, false)

	o.workloads()
	o.taintMachine(true)
	o.marked(o.namespace, "bare", "NoController")
	personDoor, kubeconfig := l.through(l.unbound("default", "person"))
	if said := o.ask(kubeconfig, "check", machine); !strings.Contains(said, o.namespace+"/bare") || !strings.Contains(said, "1 lost") {
		t.Errorf("check says:\n%s", said)
	}
	if said := o.ask(kubeconfig, "mirrors", machine); !strings.Contains(said, readiness.AllMirrored) {
		t.Errorf("mirrors says:\n%s", said)
	}
	o.onlyBareIsMarked(true)
	o.taintMachine(false)
	o.onlyBareIsMarked(false)
	l.noneRefused("rollcall-controller", controllerDoor)
	l.noneRefused("rollcall-agent", agentDoor)
	l.noneRefused("person", personDoor)
}

// startBeside starts the agent of a machine, which asks the kubelet's socket unless the flags say otherwise.
func (l *lab) startBeside(m *livecluster.Machine, kubeconfig string, flags ...string) *liverollcall.Program {
	l.Helper()
	bootID := filepath.Join(l.TempDir(), "boot_id")
	l.must(os.WriteFile(bootID, []byte(boot+"\n"), 0o600))
	usual := []string{"--kubeconfig", kubeconfig, "--node-name", m.Name, "--boot-id-file", bootID,
		"--pods-api-socket", filepath.Join(m.Root, "pods-api", "pods-api.sock"), "--manifests", m.StaticPods}
	p, err := l.programs().Start(liverollcall.Agent, "agent-of-"+m.Name, append(usual, flags...)...)
	l.must(err)
	l.Cleanup(p.Stop)
	return p
}

// workloads puts a bare pod and pods of a Deployment and a DaemonSet on the machine, and waits until they run.
func (o *occasion) workloads() {
	o.Helper()
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: machine}, Containers: []corev1.Container{{Name: "c", Image: "i:1"}},
		},
	}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	_, err := o.client.AppsV1().Deployments(o.namespace).Create(o.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
	o.must(err)
	_, err = o.client.AppsV1().DaemonSets(o.namespace).Create(o.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "logs"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
	o.must(err)
	_, err = o.client.CoreV1().Pods(o.namespace).Create(o.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Spec: template.Spec}, metav1.CreateOptions{})
	o.must(err)
	o.Cleanup(func() {
		_ = o.client.CoreV1().Namespaces().Delete(context.Background(), o.namespace, metav1.DeleteOptions{})
	})
	o.eventually("three pods run on the machine", func(ctx context.Context) (bool, error) {
		pods, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + machine + ",status.phase=Running"})
		if err != nil {
			return false, err
		}
		return len(pods.Items) == 3, nil
	})
}

func (o *occasion) taintMachine(on bool) {
	o.Helper()
	patch := `{"spec":{"taints":null}}`
	if on {
		patch = `{"spec":{"taints":[{"key":"` + taking + `","effect":"NoSchedule"}]}}`
	}
	_, err := o.client.CoreV1().Nodes().Patch(o.Context(), machine, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	o.must(err)
}

// onlyBareIsMarked waits until the bare pod is marked, or is not, and fails where another pod of the machine ever is.
func (o *occasion) onlyBareIsMarked(want bool) {
	o.Helper()
	o.eventually(fmt.Sprintf("the bare pod is marked: %t", want), func(ctx context.Context) (bool, error) {
		pods, err := o.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + machine})
		if err != nil {
			return false, err
		}
		marked := false
		for _, pod := range pods.Items {
			has := pod.Annotations[domain.AtRisk] != ""
			switch {
			case pod.Name == "bare":
				marked = has
			case has:
				o.Errorf("%s/%s is marked", pod.Namespace, pod.Name)
			}
		}
		return marked == want, nil
	})
}
