package inventory

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// A builder collects objects; build makes the Inventory of them.
type builder struct {
	inv *Inventory
	// read counts the objects and lists that were read, of whatever kind.
	read int
}

func newBuilder() *builder {
	return &builder{inv: &Inventory{shelves: map[schema.GroupKind]*shelf{}}}
}

// shelf returns the shelf of a kind and makes it where there is none: from then on the kind counts as looked up.
func (b *builder) shelf(kind schema.GroupKind) *shelf {
	s := b.inv.shelves[kind]
	if s == nil {
		s = &shelf{byName: map[types.NamespacedName]entry{}}
		b.inv.shelves[kind] = s
	}
	return s
}

func (s *shelf) has(object metav1.Object) bool {
	_, ok := s.byName[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}]
	return ok
}

// put takes ownership of the object. Two known objects of one name are an error: nothing says which of them is right.
func (b *builder) put(kind schema.GroupKind, object metav1.Object, at place) error {
	s := b.shelf(kind)
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	if first, twice := s.byName[name]; twice {
		if _, known := knownKinds[kind]; !known {
			return nil // one object in two versions; only its existence counts
		}
		return &InputError{
			Where:   at.String(),
			Problem: fmt.Sprintf("%s %s stands in the input twice, first in %s", kind.Kind, display(object), first.at),
			Advice:  "remove one of the two, or pass only one of the files",
		}
	}
	if object.GetUID() == "" {
		object.SetUID(types.UID(madeUID + kind.String() + "/" + name.String()))
	}
	s.byName[name] = entry{object, at}
	s.order = append(s.order, object)
	return nil
}

// notice records a sentence for people; the same one is kept once.
func (b *builder) notice(sentence string) {
	for _, n := range b.inv.notices {
		if n == sentence {
			return
		}
	}
	b.inv.notices = append(b.inv.notices, sentence)
}

// build makes the indexes. The builder must not be used afterwards.
func (b *builder) build() *Inventory {
	inv := b.inv
	pods := all[*corev1.Pod](inv, podKind)
	for _, pod := range pods {
		inv.completeOwners(pod.Namespace, pod.OwnerReferences)
	}
	inv.podsByNode = map[string][]*corev1.Pod{}
	inv.podsByOwner = map[ownerKey][]*corev1.Pod{}
	for _, pod := range pods {
		inv.podsByNode[pod.Spec.NodeName] = append(inv.podsByNode[pod.Spec.NodeName], pod)
		for i, ref := range pod.OwnerReferences {
			if !refersEarlier(pod.OwnerReferences[:i], ref.UID) {
				key := ownerKey{pod.Namespace, ref.UID}
				inv.podsByOwner[key] = append(inv.podsByOwner[key], pod)
			}
		}
	}
	inv.nodes = all[*corev1.Node](inv, nodeKind)
	for _, node := range inv.nodes {
		inv.completeOwners("", node.OwnerReferences)
	}
	inv.nodePools = all[*karpv1.NodePool](inv, nodePoolKind)
	inv.claims = indexClaims(all[*karpv1.NodeClaim](inv, nodeClaimKind))
	inv.budgets = map[string][]*policyv1.PodDisruptionBudget{}
	for _, budget := range all[*policyv1.PodDisruptionBudget](inv, budgetKind) {
		inv.budgets[budget.Namespace] = append(inv.budgets[budget.Namespace], budget)
	}
	return inv
}

// completeOwners ties references to the objects that they name where one side lacks its UID, as in trimmed YAML. Where
// both have one, only the UIDs decide.
func (inv *Inventory) completeOwners(namespace string, refs []metav1.OwnerReference) {
	for i := range refs {
		ref := &refs[i]
		s := inv.shelves[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()]
		if s == nil {
			continue
		}
		owner := s.named(namespace, ref.Name)
		if owner != nil && (ref.UID == "" || KnownUID(owner) == "") {
			ref.UID = owner.GetUID()
		}
	}
}

func refersEarlier(refs []metav1.OwnerReference, uid types.UID) bool {
	for _, ref := range refs {
		if ref.UID == uid {
			return true
		}
	}
	return false
}

func display(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}
