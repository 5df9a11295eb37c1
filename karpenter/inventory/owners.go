package inventory

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// Owner looks an owner up by group, kind, name and UID. Its answers, besides Found: Unknown for a kind of which nothing
// was read, NotServed for one that the server does not have, Gone otherwise (DESIGN.md section 9).
func (inv *Inventory) Owner(namespace string, ref metav1.OwnerReference) (metav1.Object, fate.Presence) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || ref.Kind == "" {
		return nil, fate.Unknown
	}
	s := inv.shelves[gv.WithKind(ref.Kind).GroupKind()]
	if s == nil {
		return nil, fate.Unknown
	}
	if object := s.named(namespace, ref.Name); object != nil && object.GetUID() == ref.UID {
		return object, fate.Found
	}
	switch {
	case s.notServed:
		return nil, fate.NotServed
	case s.partial:
		return nil, fate.Unknown
	}
	return nil, fate.Gone
}

// named returns the object of that name in the namespace, or else the one without a namespace: an owner may be
// cluster-scoped, and only the API server knows which kinds are.
func (s *shelf) named(namespace, name string) metav1.Object {
	if e, ok := s.byName[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		return e.object
	}
	return s.byName[types.NamespacedName{Name: name}].object
}

// TopOwner returns group, kind and name of the controller that a person knows the pod by: its controller, or the
// controller of that one (the Deployment of a ReplicaSet, the CronJob of a Job) where the inventory has it. The last
// result is false for a pod without owners.
func (inv *Inventory) TopOwner(pod *corev1.Pod) (schema.GroupKind, string, bool) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil && len(pod.OwnerReferences) > 0 {
		ref = &pod.OwnerReferences[0]
	}
	if ref == nil {
		return schema.GroupKind{}, "", false
	}
	if object, presence := inv.Owner(pod.Namespace, *ref); presence == fate.Found {
		if above := metav1.GetControllerOfNoCopy(object); above != nil {
			ref = above
		}
	}
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), ref.Name, true
}

// A claimIndex finds the NodeClaims that say they are a Node's.
type claimIndex struct {
	byProviderID map[string][]*karpv1.NodeClaim
	byNodeName   map[string][]*karpv1.NodeClaim
	byUID        map[types.UID][]*karpv1.NodeClaim
}

func indexClaims(claims []*karpv1.NodeClaim) claimIndex {
	index := claimIndex{
		byProviderID: map[string][]*karpv1.NodeClaim{},
		byNodeName:   map[string][]*karpv1.NodeClaim{},
		byUID:        map[types.UID][]*karpv1.NodeClaim{},
	}
	for _, claim := range claims {
		if id := claim.Status.ProviderID; id != "" {
			index.byProviderID[id] = append(index.byProviderID[id], claim)
		}
		if name := claim.Status.NodeName; name != "" {
			index.byNodeName[name] = append(index.byNodeName[name], claim)
		}
		index.byUID[claim.UID] = append(index.byUID[claim.UID], claim)
	}
	return index
}

// NodeClaim returns the NodeClaim behind the Node, or nil. The provider's ID decides, as it does in Karpenter
// (sigs.k8s.io/karpenter pkg/utils/node); then the Node's ownerReference; then status.nodeName, unless the two name
// different machines: a Node's name may be used again.
func (inv *Inventory) NodeClaim(node *corev1.Node) *karpv1.NodeClaim {
	id := node.Spec.ProviderID
	if claim := strongest(inv.claims.byProviderID[id]); claim != nil {
		return claim
	}
	for _, ref := range node.OwnerReferences {
		if schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() != nodeClaimKind {
			continue
		}
		if claim := strongest(inv.claims.byUID[ref.UID]); claim != nil {
			return claim
		}
	}
	var claims []*karpv1.NodeClaim
	for _, claim := range inv.claims.byNodeName[node.Name] {
		if id == "" || claim.Status.ProviderID == "" || claim.Status.ProviderID == id {
			claims = append(claims, claim)
		}
	}
	return strongest(claims)
}

// strongest is one of several NodeClaims that name the same machine, which Karpenter itself takes for an error: one that
// is being deleted before others, as in the controller, then the first by name; nil where there is none.
func strongest(claims []*karpv1.NodeClaim) *karpv1.NodeClaim {
	var best *karpv1.NodeClaim
	for _, claim := range claims {
		switch goes := claim.DeletionTimestamp != nil; {
		case best == nil, goes && best.DeletionTimestamp == nil:
			best = claim
		case goes == (best.DeletionTimestamp != nil) && claim.Name < best.Name:
			best = claim
		}
	}
	return best
}
