package e2e

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/livekarpenter"
	"github.com/rollcall-dev/rollcall/karpenter"
)

// Instance types of Karpenter's kwok provider: 16 cores, and 1.
const (
	large = "c-16x-amd64-linux"
	small = "c-1x-amd64-linux"
)

// pool makes the act's NodePool. Its nodes stay for ever unless adjust says otherwise.
func (a *act) pool(instanceType string, adjust func(*karpv1.NodePool)) {
	a.Helper()
	pool := &karpv1.NodePool{TypeMeta: metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodePool"}, ObjectMeta: metav1.ObjectMeta{Name: a.name}}
	pool.Spec.Template.Spec = karpv1.NodeClaimTemplateSpec{
		NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: livekarpenter.NodeClass},
		Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{instanceType}},
			{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}},
		},
		ExpireAfter: karpv1.NillableDuration{},
	}
	pool.Spec.Disruption = karpv1.Disruption{
		ConsolidateAfter: karpv1.NillableDuration{}, ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
		Budgets: []karpv1.Budget{{Nodes: "100%"}},
	}
	if adjust != nil {
		adjust(pool)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pool)
	a.must(err)
	_, err = a.dynamic.Resource(poolResource).Create(a.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	a.must(err)
	a.Cleanup(func() {
		ctx := context.Background()
		zero := int64(0)
		_ = a.client.CoreV1().Pods(a.name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
		_ = a.dynamic.Resource(poolResource).Delete(ctx, a.name, metav1.DeleteOptions{}) // its NodeClaims go with it
	})
}

// after is a duration for a NodePool; the zero NillableDuration is never.
func after(d time.Duration) karpv1.NillableDuration { return karpv1.NillableDuration{Duration: &d} }

// repool changes the act's NodePool.
func (a *act) repool(patch string) {
	a.Helper()
	_, err := a.dynamic.Resource(poolResource).Patch(a.Context(), a.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	a.must(err)
}

// pod makes a bare pod for the act's NodePool, or for one node.
func (a *act) pod(name, node string, adjust func(*corev1.Pod)) {
	a.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	pod.Spec = corev1.PodSpec{
		NodeName: node, NodeSelector: map[string]string{karpv1.NodePoolLabelKey: a.name},
		Containers: []corev1.Container{{Name: "c", Image: "i:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}},
	}
	if adjust != nil {
		adjust(pod)
	}
	// The default service account is made a moment after its namespace.
	a.must(retry.OnError(retry.DefaultBackoff, func(error) bool { return true }, func() error {
		_, err := a.client.CoreV1().Pods(a.name).Create(a.Context(), pod, metav1.CreateOptions{})
		return err
	}))
}

// placed waits until the pod runs on a node and returns that.
func (a *act) placed(pod string) string {
	a.Helper()
	return a.await("a node for "+pod, func(s sight) bool { return s.kind == "Pod" && s.name == pod && s.on != "" }).on
}

// claimOf waits until the node is Initialized and returns its NodeClaim's name.
func (a *act) claimOf(node string) (claim string) {
	a.Helper()
	a.eventually("node "+node+" is initialized", func() bool {
		life, known := a.controller.Life(node)
		claim = life.NodeClaim
		return known && life.Initialized.Is()
	})
	return claim
}

func (a *act) deleteClaim(name string) {
	a.Helper()
	a.must(a.dynamic.Resource(claimResource).Delete(a.Context(), name, metav1.DeleteOptions{}))
}

func isNode(name string, is func(sight) bool) func(sight) bool {
	return func(s sight) bool { return s.kind == "Node" && s.name == name && is(s) }
}

func isClaim(name string, is func(sight) bool) func(sight) bool {
	return func(s sight) bool { return s.kind == "NodeClaim" && s.name == name && is(s) }
}

func isPod(name string, is func(sight) bool) func(sight) bool {
	return func(s sight) bool { return s.kind == "Pod" && s.name == name && is(s) }
}

func deleting(s sight) bool { return s.deleting }
func tainted(s sight) bool  { return s.tainted }
func evicted(s sight) bool  { return s.evicted }
func marked(s sight) bool   { return s.marked }

// committed tells whether the pod's marker says that Karpenter deletes its node. The NodeClaim's deletion comes some 20 ms
// before the Node's, but on a loaded machine the watch of Nodes may be the faster of the two.
func committed(s sight) bool {
	return s.marked && s.marker.State == karpenter.Committed &&
		(s.marker.Cause == karpenter.NodeClaimDeleted || s.marker.Cause == karpenter.NodeDeleted)
}

// since is a moment after the start in milliseconds.
func since(start time.Time, s sight) int64 { return s.at.Sub(start).Milliseconds() }
