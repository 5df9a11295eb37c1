package karpenter

import (
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// A DeadlineSource says where a deadline comes from.
type DeadlineSource string

// The sources.
const (
	FromNodeClaim   DeadlineSource = "NodeClaim"              // its annotation karpenter.sh/nodeclaim-termination-timestamp
	FromGracePeriod DeadlineSource = "TerminationGracePeriod" // deletionTimestamp plus it: what Karpenter is about to annotate
	FromNotice      DeadlineSource = "Notice"                 // signal time plus the notice of the cause
)

// claimDeadline is the end of a NodeClaim's grace period; zero where it has none.
func claimDeadline(claim *karpv1.NodeClaim) (time.Time, DeadlineSource) {
	if text, annotated := claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; annotated {
		// Karpenter writes RFC3339; anything else says nothing, as in karpenter's own reading of it.
		if end, err := time.Parse(time.RFC3339, text); err == nil {
			return end, FromNodeClaim
		}
		return time.Time{}, ""
	}
	// Karpenter annotates this very time as its first act (karpenter pkg/controllers/nodeclaim/lifecycle/controller.go),
	// which is too late for a mark that precedes the eviction.
	if grace := claim.Spec.TerminationGracePeriod; grace != nil && claim.DeletionTimestamp != nil {
		return claim.DeletionTimestamp.Add(grace.Duration), FromGracePeriod
	}
	return time.Time{}, ""
}

// Shown is the cause for people, with Karpenter's own word for it where there is one.
func (d Disruption) Shown() string {
	if d.Detail == "" {
		return d.Cause
	}
	return d.Cause + ": " + d.Detail
}

// Interrupted refines a committed disruption by the reason of Karpenter's Event; an empty one changes nothing. It brings
// the deadline forward if --notice has that reason, and never decides the state.
func (c *Config) Interrupted(d Disruption, reason string) Disruption {
	if reason == "" || d.State != Committed {
		return d
	}
	d.Detail = reason
	if notice := c.Notice[reason]; notice > 0 && (d.Notice == 0 || notice < d.Notice) {
		d.Notice = notice
	}
	return d.withNotice()
}
