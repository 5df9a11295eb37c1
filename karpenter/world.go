package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// view is a fate.World over the caches for the length of one Roll: what it answered once it answers again, however the
// caches move on meanwhile. Not safe for concurrent use. It sends no request: owners that only a live read can settle
// are Unknown and collected in misses.
type view struct {
	informers *informers.Set
	owners    *owners
	// live are owners that a live read found before the caches did, by UID.
	live map[types.UID]metav1.Object

	nodes   []*corev1.Node
	pods    map[string][]*corev1.Pod
	owned   map[ownedBy][]*corev1.Pod
	answers map[question]answer
	misses  []miss
	// pools has the NodePools; nil where nothing is known of nodes that could be launched.
	pools     func() []*karpv1.NodePool
	nodePools []*karpv1.NodePool
	// unserved: an answer was NotServed, which only asking again later can change.
	unserved bool
}

type ownedBy struct {
	namespace string
	uid       types.UID
}

// question is all of an owner lookup that matters: references with one UID may differ in the rest, by mistake or malice.
type question struct{ namespace, apiVersion, kind, name, uid string }

type answer struct {
	object   metav1.Object
	presence fate.Presence
}

var _ fate.World = (*view)(nil)

func newView(set *informers.Set, owners *owners, live map[types.UID]metav1.Object) *view {
	return &view{
		informers: set, owners: owners, live: live,
		pods: map[string][]*corev1.Pod{}, owned: map[ownedBy][]*corev1.Pod{}, answers: map[question]answer{},
	}
}

func (v *view) PodsOn(node string) []*corev1.Pod {
	pods, known := v.pods[node]
	if !known {
		pods = v.informers.PodsOn(node)
		v.pods[node] = pods
	}
	return pods
}

func (v *view) PodsOwnedBy(namespace string, uid types.UID) []*corev1.Pod {
	key := ownedBy{namespace, uid}
	pods, known := v.owned[key]
	if !known {
		pods = v.informers.PodsOwnedBy(namespace, uid)
		v.owned[key] = pods
	}
	return pods
}

func (v *view) Owner(namespace string, ref metav1.OwnerReference) (metav1.Object, fate.Presence) {
	key := question{namespace, ref.APIVersion, ref.Kind, ref.Name, string(ref.UID)}
	if a, known := v.answers[key]; known {
		return a.object, a.presence
	}
	object, presence, missed := v.owners.lookup(namespace, ref)
	if found := v.live[ref.UID]; missed != nil && found != nil {
		object, presence, missed = found, fate.Found, nil
	}
	if missed != nil {
		v.misses = append(v.misses, *missed)
	}
	v.unserved = v.unserved || presence == fate.NotServed
	v.answers[key] = answer{object, presence}
	return object, presence
}

func (v *view) Nodes() []*corev1.Node {
	if v.nodes == nil {
		v.nodes = listed(v.informers.Core().V1().Nodes().Lister().List(labels.Everything()))
	}
	return v.nodes
}

// What follows is known only with informers.Options.Placement.

func (v *view) Namespace(name string) *corev1.Namespace {
	if !v.informers.Placement() {
		return nil
	}
	return found(v.informers.Core().V1().Namespaces().Lister().Get(name))
}

func (v *view) PodDisruptionBudgets(namespace string) []*policyv1.PodDisruptionBudget {
	if !v.informers.Placement() {
		return nil
	}
	return listed(v.informers.Policy().V1().PodDisruptionBudgets().Lister().PodDisruptionBudgets(namespace).List(labels.Everything()))
}

func (v *view) PersistentVolumeClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	if !v.informers.Placement() {
		return nil
	}
	return found(v.informers.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(namespace).Get(name))
}

func (v *view) PersistentVolume(name string) *corev1.PersistentVolume {
	if !v.informers.Placement() {
		return nil
	}
	return found(v.informers.Core().V1().PersistentVolumes().Lister().Get(name))
}

func (v *view) NodePools() []*karpv1.NodePool {
	if v.nodePools == nil && v.pools != nil {
		v.nodePools = v.pools()
	}
	return v.nodePools
}

// found turns a lister's answer into the World's: nil for what it does not have. A lister fails in no other way.
func found[T any](object *T, err error) *T {
	if err != nil {
		return nil
	}
	return object
}

func listed[T any](objects []*T, err error) []*T {
	if err != nil {
		return nil
	}
	return objects
}
