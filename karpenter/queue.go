package karpenter

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// A Key names one thing to reconcile: a node, or a pod that no node's key covers.
type Key struct {
	Kind      string // one of those below
	Namespace string // of a Pod
	Name      string
}

// The kinds of keys.
const (
	NodeKey = "Node"
	PodKey  = "Pod" // bears a marker and runs nowhere
	// ClaimKey asks, by the node's name, what interrupted a node whose NodeClaim is being deleted.
	ClaimKey = "NodeClaim"
)

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

const (
	firstRetry = 50 * time.Millisecond
	// lastRetry is as long as a mark may be missing after the API server is well again.
	lastRetry = 30 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[Key]

// newQueue makes the one queue of the controller. A key is in it once, and is never worked on twice at a time.
func newQueue(metrics workqueue.MetricsProvider) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[Key]{Name: "nodes", MetricsProvider: metrics})
}
