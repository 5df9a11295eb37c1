// Package karpenter owns the disruption of nodes: what state a node is in and why (DESIGN.md section 2), the reconciler
// that acts on it, and the marker it leaves on pods (section 5). Verdicts are package fate's.
package karpenter

import "time"

// State is how far a node is on its way out.
type State string

// The states.
const (
	None      State = "None"
	Pending   State = "Pending"   // marked, can still be undone
	Committed State = "Committed" // the node is going
)

// Causes that are no taint key.
const (
	NodeClaimDeleted = "NodeClaimDeleted"
	NodeDeleted      = "NodeDeleted"
)

// Disruption is the state of one node at one moment. The zero value of each time means that none is known.
type Disruption struct {
	State State
	// Cause is the signal behind the state: a taint key, NodeClaimDeleted or NodeDeleted; empty with None.
	Cause string
	// Since is the signal time; SinceEstimated says that it is only an upper bound.
	Since          time.Time
	SinceEstimated bool
	// Deadline is the moment after which pods are killed.
	Deadline time.Time
	// Stale says that the node bears a ToBeDeletedByClusterAutoscaler taint that counts for nothing.
	Stale bool
}
