package fate

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Presence is the outcome of looking an owner up.
type Presence int

// The presences. Unknown is the zero value: what nobody looked up decides nothing.
const (
	// Unknown: the owner could not be looked up (access refused, a kind that is not listed, an offline check without
	// objects of that kind, or a miss that no live read has confirmed yet).
	Unknown Presence = iota
	// Found: an object of that group, kind, name and UID exists.
	Found
	// Gone: the kind is known and holds no object of that name with that UID.
	Gone
	// NotServed: the server serves no such kind in any version.
	NotServed
)

// World is what the engine may ask about a cluster. One World is one snapshot: its answers do not change while a Roll
// is taken. All objects stay the World's and must not be changed. What the World does not know it answers with nil.
// Every pod has a name of its own in its namespace. Each has a UID, which files may give to several; a World that is read
// from files gives one to each pod that was written without.
type World interface {
	// PodsOn returns every pod bound to the node, whatever its phase.
	PodsOn(node string) []*corev1.Pod
	// PodsOwnedBy returns the pods of the namespace with an ownerReference (controller or not) to this UID.
	PodsOwnedBy(namespace string, uid types.UID) []*corev1.Pod
	// Owner looks up the object behind an ownerReference of a pod in namespace, by group, kind, name and UID; the version
	// in the reference is ignored. The object is not nil only with Found, and of the typed kind for ReplicaSet,
	// ReplicationController, StatefulSet, DaemonSet, Job and Pod; any other kind is *unstructured.Unstructured or
	// *metav1.PartialObjectMetadata.
	Owner(namespace string, ref metav1.OwnerReference) (metav1.Object, Presence)
	// Nodes returns every Node, going or not.
	Nodes() []*corev1.Node
	// Namespace returns the Namespace, for the namespaceSelector of pod affinity.
	Namespace(name string) *corev1.Namespace
	PodDisruptionBudgets(namespace string) []*policyv1.PodDisruptionBudget
	PersistentVolumeClaim(namespace, name string) *corev1.PersistentVolumeClaim
	PersistentVolume(name string) *corev1.PersistentVolume
	NodePools() []*karpv1.NodePool
}
