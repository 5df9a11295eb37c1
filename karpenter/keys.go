package karpenter

import (
	"time"

	"github.com/rollcall-dev/rollcall/internal/queue"
)

// The kinds of keys that the Controller reconciles: a node, or a pod that no node's key covers.
const (
	NodeKey = "Node"
	PodKey  = "Pod" // bears a marker and runs nowhere
	// ClaimKey asks, by the node's name, what interrupted a node whose NodeClaim is being deleted.
	ClaimKey = "NodeClaim"
)

var _ queue.Reconciler = (*Controller)(nil)

// rankOf is the place of the node's keys in the order. Handlers ask for every change that concerns a disruption: what the
// state is, is worked out only for nodes that may be in one.
func (c *Controller) rankOf(name string, now time.Time) queue.Rank {
	if !c.goes(name) {
		return queue.Rank{}
	}
	node, err := c.informers.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return queue.Rank{Class: queue.Committed} // it does not exist any more
	}
	return c.disrupt(node, now).rank()
}

// rank is how soon a pod of the node may be killed.
func (d Disruption) rank() queue.Rank {
	switch d.State {
	case Committed:
		return queue.Rank{Class: queue.Committed, Kill: d.Deadline}
	case Pending:
		return queue.Rank{Class: queue.Pending}
	}
	return queue.Rank{}
}
