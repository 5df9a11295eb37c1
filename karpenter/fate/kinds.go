package fate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kind is what rollcall knows of one kind of pod owner. To teach it another kind, add a row to kinds.
type kind struct {
	// group is the API group; "*" stands for any. A namesake in another group has no row and is a CustomController.
	group, name string
	// withNode is set for owners whose pods belong to their node and are not made again elsewhere (rule 3).
	withNode Reason
	// judge applies the rules that are the kind's own (8 to 13 and 15). The owner is nil where it could not be looked up.
	judge func(r *Roll, pod *corev1.Pod, owner metav1.Object) ruling
}

// kinds is the table of owners with rules of their own (facts/disruption.md section 5, "Owner kinds").
var kinds = []kind{
	{group: "apps", name: "ReplicaSet", judge: (*Roll).ofReplicaSet},
	{group: "", name: "ReplicationController", judge: (*Roll).ofReplicationController},
	{group: "apps", name: "StatefulSet", judge: (*Roll).ofStatefulSet},
	{group: "batch", name: "Job", judge: (*Roll).ofJob},
	{group: "*", name: "DaemonSet", withNode: DaemonSet},
	{group: "", name: "Node", withNode: NodeOwned},
	{group: "", name: "Pod", judge: (*Roll).ofPod},
	{group: "argoproj.io", name: "Workflow", judge: (*Roll).ofWorkflow},
}

// builtinGroups are the API groups of Kubernetes 1.37 itself (k8s.io/api, apiextensions and kube-aggregator). None of
// their kinds makes pods, except those that have a row in kinds. The list is explicit because a group that merely ends
// in k8s.io may be a CRD's (gateway.networking.k8s.io, snapshot.storage.k8s.io, the *.x-k8s.io groups): a custom
// controller may stand behind such a kind. A CRD cannot take one of the names below that have no dot, and the others are
// protected by the api-approved annotation.
var builtinGroups = map[string]bool{
	"":                             true,
	"apps":                         true,
	"autoscaling":                  true,
	"batch":                        true,
	"policy":                       true,
	"admissionregistration.k8s.io": true,
	"apiextensions.k8s.io":         true,
	"apiregistration.k8s.io":       true,
	"authentication.k8s.io":        true,
	"authorization.k8s.io":         true,
	"certificates.k8s.io":          true,
	"coordination.k8s.io":          true,
	"discovery.k8s.io":             true,
	"events.k8s.io":                true,
	"flowcontrol.apiserver.k8s.io": true,
	"internal.apiserver.k8s.io":    true,
	"lifecycle.k8s.io":             true,
	"networking.k8s.io":            true,
	"node.k8s.io":                  true,
	"rbac.authorization.k8s.io":    true,
	"resource.k8s.io":              true,
	"scheduling.k8s.io":            true,
	"storage.k8s.io":               true,
	"storagemigration.k8s.io":      true,
}

// kindOf returns the row for the kind that a reference names, or nil.
func kindOf(ref *metav1.OwnerReference) *kind {
	group := groupOf(ref)
	for i := range kinds {
		if k := &kinds[i]; k.name == ref.Kind && (k.group == group || k.group == "*") {
			return k
		}
	}
	return nil
}

// makesNoPods says that the reference names a built-in kind that never makes pods: a ConfigMap, a Deployment (its
// ReplicaSets do), a CronJob and so on.
func makesNoPods(ref *metav1.OwnerReference) bool {
	return kindOf(ref) == nil && builtinGroups[groupOf(ref)]
}

// groupOf returns the API group of a reference. The version does not matter: controllers and the garbage collector
// compare kind, name and UID only (facts/fate-truth.md C10).
func groupOf(ref *metav1.OwnerReference) string {
	group, _, found := strings.Cut(ref.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

func isPod(ref *metav1.OwnerReference) bool  { return ref.Kind == "Pod" && groupOf(ref) == "" }
func isNode(ref *metav1.OwnerReference) bool { return ref.Kind == "Node" && groupOf(ref) == "" }

// controllerOf returns the reference with controller: true, or nil.
func controllerOf(pod *corev1.Pod) *metav1.OwnerReference {
	for i := range pod.OwnerReferences {
		if ref := &pod.OwnerReferences[i]; ref.Controller != nil && *ref.Controller {
			return ref
		}
	}
	return nil
}
