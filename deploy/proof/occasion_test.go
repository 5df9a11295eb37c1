package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/readiness"
)

const (
	// taking is the taint that commits a node to going.
	taking = "spot-interruption"
	boot   = "boot-1"
)

var claims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

// owners are the kinds of controllers that are looked up; the last one because the values say so.
var owners = []metav1.OwnerReference{
	{APIVersion: "v1", Kind: "ReplicationController"}, {APIVersion: "apps/v1", Kind: "ReplicaSet"}, {APIVersion: "apps/v1", Kind: "StatefulSet"},
	{APIVersion: "apps/v1", Kind: "DaemonSet"}, {APIVersion: "batch/v1", Kind: "Job"}, {APIVersion: "v1", Kind: "Pod"}, {APIVersion: "example.com/v1", Kind: "Widget"},
}

// An occasion is a part of the cluster in which all is there for which the controller needs a right. Its nodes are Node
// objects without machines, so that one is made in no time; all names begin with that of its namespace.
type occasion struct {
	*lab
	namespace string
}

var occasions atomic.Int32

// newOccasion makes:
//
//   - a node that is taken back, with a bare pod, and pods whose owners of every kind are gone;
//   - a node whose NodeClaim is deleted, as Karpenter does upon an interruption;
//   - a new node whose static pod can have no mirror, since the namespace does not exist, and one without static pods.
func (l *lab) newOccasion() *occasion {
	l.Helper()
	o := &occasion{lab: l, namespace: fmt.Sprintf("occasion-%d", occasions.Add(1))}
	l.makeNamespace(o.namespace)
	l.makeNamespace(o.orphans())
	o.node("going", map[string]any{"spec": map[string]any{"taints": []any{taint(taking)}}})
	o.pod(o.namespace, "bare", "going")
	for i, owner := range owners {
		owner.Name, owner.UID, owner.Controller = "gone", types.UID(fmt.Sprintf("%s-%d", o.namespace, i)), new(bool)
		*owner.Controller = true
		o.pod(o.orphans(), fmt.Sprintf("of-%d", i), "going", owner)
	}
	o.node("claimed", nil)
	o.interrupt("claimed")
	o.newNode("held", readiness.StaticPod{Namespace: o.namespace + "-absent", Name: "proxy"})
	o.newNode("free")
	return o
}

func (o *occasion) orphans() string { return o.namespace + "-orphans" }

func (o *occasion) nodeName(name string) string { return o.namespace + "-" + name }

func taint(key string) map[string]any {
	return map[string]any{"key": key, "value": "pending", "effect": "NoSchedule"}
}

// node makes a Node and patches it; its status is taken as it is, too.
func (o *occasion) node(name string, patch map[string]any) {
	o.Helper()
	name = o.nodeName(name)
	_, err := o.client.CoreV1().Nodes().Create(o.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	o.must(err)
	o.Cleanup(func() { _ = o.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	if patch == nil {
		return
	}
	text, err := json.Marshal(patch)
	o.must(err)
	for _, subresource := range []string{"", "status"} {
		_, err = o.client.CoreV1().Nodes().Patch(o.Context(), name, types.MergePatchType, text, metav1.PatchOptions{}, subresource)
		o.must(err)
	}
}

// newNode makes a Node as it is when its agent has published these static pods.
func (o *occasion) newNode(name string, pods ...readiness.StaticPod) {
	o.Helper()
	expected := readiness.Expected{Source: "manifests", BootID: boot, Observed: time.Now(), Pods: pods}
	published, err := expected.Encode("proof")
	o.must(err)
	o.node(name, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{domain.StaticPods: published}},
		"spec":     map[string]any{"taints": []any{taint(readiness.TaintKey)}},
		"status":   map[string]any{"nodeInfo": map[string]any{"bootID": boot}},
	})
}

func (o *occasion) pod(namespace, name, node string, owner ...metav1.OwnerReference) {
	o.Helper()
	_, err := o.client.CoreV1().Pods(namespace).Create(o.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner},
		Spec: corev1.PodSpec{
			NodeName:    o.nodeName(node),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // its Node is tainted, since no kubelet is there
			Containers:  []corev1.Container{{Name: "c", Image: "i:1"}},
		},
	}, metav1.CreateOptions{})
	o.must(err)
	o.dropPodLater(namespace, name)
}

func (l *lab) dropPodLater(namespace, name string) {
	l.Cleanup(func() { _ = l.dropPod(context.Background(), namespace, name) })
}

// dropPod deletes the pod at once: no kubelet would confirm it.
func (l *lab) dropPod(ctx context.Context, namespace, name string) error {
	return l.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// interrupt makes a NodeClaim behind the node and deletes it, and says why as Karpenter does; a finalizer keeps it.
func (o *occasion) interrupt(node string) {
	o.Helper()
	name, client := o.nodeName(node), o.dynamic.Resource(claims)
	claim, err := client.Create(o.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
		"metadata": map[string]any{"name": name, "finalizers": []any{"example.com/stay"}},
		"spec": map[string]any{
			"nodeClassRef": map[string]any{"group": "example.com", "kind": "Class", "name": "c"},
			"requirements": []any{map[string]any{"key": "karpenter.sh/capacity-type", "operator": "Exists"}},
		},
	}}, metav1.CreateOptions{})
	o.must(err)
	o.Cleanup(func() {
		_, _ = client.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	_, err = o.client.CoreV1().Events("default").Create(o.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: name + ".", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: name, UID: claim.GetUID()},
		Reason:         "SpotInterrupted", Type: "Warning", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}, metav1.CreateOptions{})
	o.must(err)
	status := fmt.Sprintf(`{"status":{"nodeName":%q}}`, name)
	_, err = client.Patch(o.Context(), name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	o.must(err)
	o.must(client.Delete(o.Context(), name, metav1.DeleteOptions{}))
}

// marked waits until the pod bears the marker with that reason.
func (o *occasion) marked(namespace, name, reason string) {
	o.Helper()
	o.eventually("the mark on "+namespace+"/"+name, func(ctx context.Context) (bool, error) {
		pod, err := o.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || pod.Annotations[domain.AtRisk] == "" {
			return false, err
		}
		var marker struct{ Reason string }
		if err := json.Unmarshal([]byte(pod.Annotations[domain.AtRisk]), &marker); err != nil {
			return false, err
		}
		if marker.Reason != reason {
			return false, fmt.Errorf("the reason is %s, want %s", marker.Reason, reason)
		}
		return true, nil
	})
}

// condition waits for the condition of a Node, and for its readiness taint to be there or not.
func (l *lab) condition(node string, status corev1.ConditionStatus, reason string, tainted bool) {
	l.Helper()
	l.eventually(fmt.Sprintf("node %s: %s %s, readiness taint %t", node, status, reason, tainted), func(ctx context.Context) (bool, error) {
		object, err := l.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		c := readiness.ConditionOf(object, readiness.DefaultCondition)
		if c == nil {
			return false, fmt.Errorf("it has no condition")
		}
		has := false
		for _, t := range object.Spec.Taints {
			has = has || t.Key == readiness.TaintKey
		}
		if c.Status != status || c.Reason != reason || has != tainted {
			return false, fmt.Errorf("it is %s %s (%s), readiness taint %t", c.Status, c.Reason, c.Message, has)
		}
		return true, nil
	})
}

// recorded waits for the only record of the namespace to be of that pod and in that state.
func (o *occasion) recorded(pod, state string) {
	o.Helper()
	o.eventually(fmt.Sprintf("the record of %s is %s", pod, state), func(ctx context.Context) (bool, error) {
		list, err := o.dynamic.Resource(losses).Namespace(o.namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false, err
		}
		name, _, _ := unstructured.NestedString(list.Items[0].Object, "spec", "pod", "name")
		now, _, _ := unstructured.NestedString(list.Items[0].Object, "status", "state")
		if name != pod || now != state {
			return false, fmt.Errorf("it is of %s and %s", name, now)
		}
		return true, nil
	})
}
