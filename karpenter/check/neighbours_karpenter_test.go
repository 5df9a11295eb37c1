package check

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpod "sigs.k8s.io/karpenter/pkg/utils/pod"
)

// karpenterView is what Karpenter may ask about a pod: the clock, and the end of the node's grace period where it has one.
type karpenterView struct {
	clock *clocktesting.FakeClock
	end   *time.Time
}

// viewAt takes the end of the grace period from the NodeClaim, as Karpenter does; the claim may be nil.
func viewAt(now time.Time, claim *karpv1.NodeClaim) karpenterView {
	v := karpenterView{clock: clocktesting.NewFakeClock(now)}
	if claim != nil {
		if end, err := time.Parse(time.RFC3339, claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]); err == nil {
			v.end = &end
		}
	}
	return v
}

// predicates are those of Karpenter's pod utilities (sigs.k8s.io/karpenter/pkg/utils/pod).
func (v karpenterView) predicates() map[string]func(*corev1.Pod) bool {
	return map[string]func(*corev1.Pod) bool{
		"IsActive":           karpod.IsActive,
		"IsReschedulable":    karpod.IsReschedulable,
		"IsEvictable":        func(p *corev1.Pod) bool { return karpod.IsEvictable(p, v.clock, nil) },
		"IsWaitingEviction":  func(p *corev1.Pod) bool { return karpod.IsWaitingEviction(p, v.clock) },
		"IsDrainable":        func(p *corev1.Pod) bool { return karpod.IsDrainable(p, v.clock) },
		"IsDisruptable":      func(p *corev1.Pod) bool { return karpod.IsDisruptable(p, v.clock, nil) },
		"IsProvisionable":    karpod.IsProvisionable,
		"IsStuckTerminating": func(p *corev1.Pod) bool { return karpod.IsStuckTerminating(p, v.clock) },
		"IsPodEligibleForForcedEviction": func(p *corev1.Pod) bool {
			return karpod.IsPodEligibleForForcedEviction(p, v.end)
		},
		"IsOwnedByNode":                     karpod.IsOwnedByNode,
		"IsOwnedByDaemonSet":                karpod.IsOwnedByDaemonSet,
		"IsOwnedByStatefulSet":              karpod.IsOwnedByStatefulSet,
		"IsDoNotDisruptActive":              func(p *corev1.Pod) bool { return karpod.IsDoNotDisruptActive(p, v.clock, nil) },
		"ToleratesDisruptedNoScheduleTaint": karpod.ToleratesDisruptedNoScheduleTaint,
	}
}

// says puts the predicates together as Karpenter's terminator and provisioner do: whether a drain evicts the pod, waits
// for it or leaves it, and whether room is sought for a successor.
func (v karpenterView) says(pod *corev1.Pod) string {
	is := v.predicates()
	answer := v.drains(pod)
	if is["IsReschedulable"](pod) {
		answer += ", seeks room"
	}
	return answer
}

func (v karpenterView) drains(pod *corev1.Pod) string {
	is := v.predicates()
	switch {
	case is["IsEvictable"](pod):
		return "evicts"
	case is["IsWaitingEviction"](pod) && is["IsDoNotDisruptActive"](pod):
		return "waits (do-not-disrupt)"
	case is["IsWaitingEviction"](pod):
		return "waits (Terminating)"
	case karpod.IsTerminal(pod):
		return "ended"
	case is["IsOwnedByNode"](pod):
		return "leaves (a Node's)"
	case is["ToleratesDisruptedNoScheduleTaint"](pod):
		return "leaves (tolerates)"
	}
	return "leaves (overdue)"
}
