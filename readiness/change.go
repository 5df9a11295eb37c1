package readiness

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeChanged tells whether anything of a Node differs that Evaluate or Condition reads, or that whoever holds it does.
// Heartbeats, by far the most of all changes, do not count.
func NodeChanged(old, node *corev1.Node, conditionType string) bool {
	return old.UID != node.UID ||
		(old.DeletionTimestamp == nil) != (node.DeletionTimestamp == nil) ||
		old.Status.NodeInfo.BootID != node.Status.NodeInfo.BootID ||
		old.Annotations[StaticPodsAnnotation] != node.Annotations[StaticPodsAnnotation] ||
		old.Labels[nodePoolLabel] != node.Labels[nodePoolLabel] || old.Labels[registeredLabel] != node.Labels[registeredLabel] ||
		!slices.EqualFunc(old.Spec.Taints, node.Spec.Taints, sameTaint) ||
		!sameCondition(ConditionOf(old, conditionType), ConditionOf(node, conditionType))
}

func sameTaint(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }

func sameCondition(a, b *corev1.NodeCondition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// PodChanged tells whether anything of a pod differs that decides whether it counts as a mirror. Names are the same.
func PodChanged(old, pod *corev1.Pod) bool {
	return old.UID != pod.UID || old.Generation != pod.Generation || old.Spec.NodeName != pod.Spec.NodeName ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || finished(old) != finished(pod) ||
		!maps.Equal(old.Annotations, pod.Annotations) ||
		!slices.EqualFunc(old.OwnerReferences, pod.OwnerReferences, sameOwner)
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID
}
