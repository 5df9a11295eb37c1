package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/readiness"
)

// readinessTaint is the published rule's (deploy/readiness-rule.yaml).
var readinessTaint = corev1.Taint{Key: readiness.DefaultTaint.Key, Value: "pending", Effect: readiness.DefaultTaint.Effect}

// completed is what the Node Readiness Controller writes on a node that it is done with; it ends with the rule's UID.
const completed = "readiness.k8s.io/bootstrap-completed-3f0c6a34-6d5b-4f0e-9c6e-0d3a8d0c7f11"

// A rule is the Node Readiness Controller with the published bootstrap-only rule, for the act's nodes, as
// facts/static-pods.md section 3.2 has it: the controller itself is no Go module.
type rule struct {
	*act
	mu       sync.Mutex
	finished map[string]bool // guarded by mu; nodes seen with the note
	ignored  map[string]bool // guarded by mu; of those, the ones seen registered and with the taint
}

func newRule(a *act) *rule {
	return &rule{act: a, finished: map[string]bool{}, ignored: map[string]bool{}}
}

func (r *rule) see(node *corev1.Node) {
	condition := readiness.ConditionOf(node, readiness.DefaultCondition)
	satisfied := condition != nil && condition.Status == corev1.ConditionTrue
	_, done := node.Annotations[completed]
	switch {
	// 1. A completed rule never acts on the node again.
	case done:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finished[node.Name] = true
		r.ignored[node.Name] = node.Labels[karpv1.NodeRegisteredLabelKey] == "true" && readiness.DefaultTaint.On(node)
	// 2. Satisfied: one patch removes the taint, where it is, and completes the rule.
	case satisfied:
		r.setTaints(node, readiness.DefaultTaint.Without(node), map[string]any{completed: `{"rule-name":"static-pods-mirrored"}`})
	// 3. Not satisfied: the taint is put on a node that lacks it.
	case !readiness.DefaultTaint.On(node):
		r.setTaints(node, append(slices.Clone(node.Spec.Taints), readinessTaint), nil)
	}
}

// setTaints changes the node as it was seen; where it has changed since, the next version comes to be seen.
func (a *act) setTaints(node *corev1.Node, taints []corev1.Taint, annotations map[string]any) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": annotations},
		"spec":     map[string]any{"taints": taints},
	})
	a.must(err)
	_, err = a.client.CoreV1().Nodes().Patch(a.Context(), node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	a.unlessGone(err)
}

// registerTaint is what kubelets do to which Karpenter's provider gave the startup taint: a Node bears it from the start.
// Once it was seen there it is not put on again.
func (a *act) registerTaint() func(*corev1.Node) {
	seen := map[types.UID]bool{}
	return func(node *corev1.Node) {
		switch {
		case readiness.DefaultTaint.On(node):
			seen[node.UID] = true
		case !seen[node.UID]:
			a.setTaints(node, append(slices.Clone(node.Spec.Taints), readinessTaint), nil)
		}
	}
}

// done counts the nodes that the rule will not act on again.
func (r *rule) done() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.finished)
}

// declined tells whether the rule last saw the node registered and with the taint, and did nothing about it.
func (r *rule) declined(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ignored[node]
}

// onNodes calls see with each version of the act's nodes until the test ends.
func (a *act) onNodes(see func(*corev1.Node)) {
	a.Helper()
	factory := coreinformers.NewSharedInformerFactoryWithOptions(a.client, 0, coreinformers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = karpv1.NodePoolLabelKey + "=" + a.name
	}))
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { see(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { see(object.(*corev1.Node)) },
	})
	a.must(err)
	factory.Start(a.Context().Done())
	a.Cleanup(factory.Shutdown)
}

// unlessGone reports an error, but for those of a node that has changed or gone since and of a test that is over.
func (a *act) unlessGone(err error) {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && a.Context().Err() == nil {
		a.Error(err)
	}
}

// writeTrue is what a reporter does that looks at mirrors alone, such as the published script: they are there.
func (a *act) writeTrue(node *corev1.Node) {
	if readiness.ConditionOf(node, readiness.DefaultCondition) == nil {
		condition := corev1.NodeCondition{Type: readiness.DefaultCondition, Status: corev1.ConditionTrue, Reason: "Mirrored", LastTransitionTime: metav1.Now()}
		a.patchNode(node, map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}}, "status")
	}
}

// publishNone is what rollcall-agent does on a node without static pods.
func (a *act) publishNone(node *corev1.Node) {
	if node.Annotations[readiness.StaticPodsAnnotation] == "" {
		none := readiness.Expected{Source: "test", BootID: node.Status.NodeInfo.BootID, Observed: time.Now()}
		value, err := none.Encode("e2e")
		a.must(err)
		a.patchNode(node, map[string]any{"metadata": map[string]any{"annotations": map[string]string{readiness.StaticPodsAnnotation: value}}})
	}
}

func (a *act) patchNode(node *corev1.Node, change any, subresources ...string) {
	body, err := json.Marshal(change)
	a.must(err)
	_, err = a.client.CoreV1().Nodes().Patch(a.Context(), node.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, subresources...)
	a.unlessGone(err)
}

// refuseRegistration makes the API server refuse Karpenter's registration of the act's nodes: the update that takes the
// taint of unregistered nodes away. A Node that nobody else has is tried on.
func (a *act) refuseRegistration() {
	a.Helper()
	probe, err := a.client.CoreV1().Nodes().Create(a.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "probe-" + a.name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}},
	}, metav1.CreateOptions{})
	a.must(err)
	a.Cleanup(func() { _ = a.cluster.Allow(context.Background(), a.name) })
	has := func(object string) string {
		return fmt.Sprintf("%s.spec.?taints.orValue([]).exists(t, t.key == %q)", object, karpv1.UnregisteredTaintKey)
	}
	a.must(a.cluster.Refuse(a.Context(), livecluster.Refusal{
		Name: a.name, Operation: admissionv1.Update, Resource: "nodes",
		Allowed: fmt.Sprintf("!(object.metadata.name == %q || object.metadata.?labels[?%q].orValue('') == %q) || !%s || %s",
			probe.Name, karpv1.NodePoolLabelKey, a.name, has("oldObject"), has("object")),
	}, func(ctx context.Context, client kubernetes.Interface) error {
		registered := probe.DeepCopy()
		registered.ResourceVersion, registered.Spec.Taints = "", nil
		_, err := client.CoreV1().Nodes().Update(ctx, registered, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}))
	a.must(a.client.CoreV1().Nodes().Delete(a.Context(), probe.Name, metav1.DeleteOptions{}))
}
