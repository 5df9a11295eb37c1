package karpenter

import "github.com/rollcall-dev/rollcall/internal/queue"

// The kinds of keys that the Controller reconciles: a node, or a pod that no node's key covers.
const (
	NodeKey = "Node"
	PodKey  = "Pod" // bears a marker and runs nowhere
	// ClaimKey asks, by the node's name, what interrupted a node whose NodeClaim is being deleted.
	ClaimKey = "NodeClaim"
)

var _ queue.Reconciler = (*Controller)(nil)
