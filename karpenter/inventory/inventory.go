// Package inventory owns the objects of a cluster as they were at one moment, read once from files or from an API
// server, and answers the questions of a fate.World about them. It writes nothing, watches nothing and gives no verdict.
package inventory

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// An Inventory is one snapshot of a cluster. It implements fate.World and never changes once made, so that it may be
// read from several goroutines. All objects that it hands out stay its own and must not be changed.
type Inventory struct {
	shelves map[schema.GroupKind]*shelf

	nodes       []*corev1.Node
	vanished    []*corev1.Node
	nodePools   []*karpv1.NodePool
	podsByNode  map[string][]*corev1.Pod
	podsByOwner map[ownerKey][]*corev1.Pod
	budgets     map[string][]*policyv1.PodDisruptionBudget
	claims      claimIndex
	notices     []string
}

var _ fate.World = (*Inventory)(nil)

// A shelf holds the objects of one kind, of whatever version.
type shelf struct {
	byName map[types.NamespacedName]entry
	// order is the order of reading, which the answers keep.
	order []metav1.Object
	// partial: some objects of the kind were not read, so that a miss proves nothing.
	partial bool
	// notServed: the server has no such kind.
	notServed bool
}

type entry struct {
	object metav1.Object
	at     place
}

type ownerKey struct {
	namespace string
	uid       types.UID
}

// PodsOn returns every pod bound to the node, whatever its phase, in the order of reading.
func (inv *Inventory) PodsOn(node string) []*corev1.Pod { return inv.podsByNode[node] }

// PodsOwnedBy returns the pods of the namespace with an ownerReference (controller or not) to this UID.
func (inv *Inventory) PodsOwnedBy(namespace string, uid types.UID) []*corev1.Pod {
	return inv.podsByOwner[ownerKey{namespace, uid}]
}

// Pod returns the pod of that name, on whatever node, or nil.
func (inv *Inventory) Pod(namespace, name string) *corev1.Pod {
	return find[*corev1.Pod](inv, podKind, types.NamespacedName{Namespace: namespace, Name: name})
}

// Nodes returns every Node in the order of reading.
func (inv *Inventory) Nodes() []*corev1.Node { return inv.nodes }

// Node returns the Node of that name, or nil.
func (inv *Inventory) Node(name string) *corev1.Node {
	return find[*corev1.Node](inv, nodeKind, types.NamespacedName{Name: name})
}

// Vanished returns an empty Node, by name, for each that pods are bound to and that the cluster does not have any more.
// There is none in an inventory from files: they may simply leave a Node out (StrayNodes).
func (inv *Inventory) Vanished() []*corev1.Node { return inv.vanished }

// NodePools returns every NodePool in the order of reading.
func (inv *Inventory) NodePools() []*karpv1.NodePool { return inv.nodePools }

// Namespace returns the Namespace of that name, or nil.
func (inv *Inventory) Namespace(name string) *corev1.Namespace {
	return find[*corev1.Namespace](inv, namespaceKind, types.NamespacedName{Name: name})
}

// PodDisruptionBudgets returns the budgets of one namespace.
func (inv *Inventory) PodDisruptionBudgets(namespace string) []*policyv1.PodDisruptionBudget {
	return inv.budgets[namespace]
}

// PersistentVolumeClaim returns the claim of that name, or nil.
func (inv *Inventory) PersistentVolumeClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return find[*corev1.PersistentVolumeClaim](inv, claimKind, types.NamespacedName{Namespace: namespace, Name: name})
}

// PersistentVolume returns the volume of that name, or nil.
func (inv *Inventory) PersistentVolume(name string) *corev1.PersistentVolume {
	return find[*corev1.PersistentVolume](inv, volumeKind, types.NamespacedName{Name: name})
}

// Notices says, a sentence each, what could not be read and what that means for the answers.
func (inv *Inventory) Notices() []string { return inv.notices }

// StrayNodes returns the names of nodes that pods are bound to but that are not in the inventory, with the number of
// those pods.
func (inv *Inventory) StrayNodes() map[string]int {
	stray := map[string]int{}
	for name, pods := range inv.podsByNode {
		if name != "" && inv.Node(name) == nil {
			stray[name] = len(pods)
		}
	}
	return stray
}

func find[T metav1.Object](inv *Inventory, kind schema.GroupKind, name types.NamespacedName) T {
	var none T
	s := inv.shelves[kind]
	if s == nil {
		return none
	}
	object, _ := s.byName[name].object.(T)
	return object
}

func all[T metav1.Object](inv *Inventory, kind schema.GroupKind) []T {
	s := inv.shelves[kind]
	if s == nil {
		return nil
	}
	objects := make([]T, 0, len(s.order))
	for _, object := range s.order {
		if t, ok := object.(T); ok {
			objects = append(objects, t)
		}
	}
	return objects
}

// madeUID begins the UIDs that stand in for those that trimmed YAML leaves out; no API server makes such a UID.
const madeUID = "no-uid:"

// KnownUID returns the object's UID as it was read; empty where the input had none.
func KnownUID(object metav1.Object) types.UID {
	if uid := object.GetUID(); !strings.HasPrefix(string(uid), madeUID) {
		return uid
	}
	return ""
}
