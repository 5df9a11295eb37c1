package karpenter

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/events"
	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/internal/refusals"
	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// Indexes that the controller adds to the caches.
const (
	markedBy      = "marked"    // pods that bear a marker, by the node they run on
	markedFor     = "markedFor" // pods that bear a marker, by the node that it names
	signalledNode = "signalled" // nodes that bear a signal of disruption
	anySignalled  = "any"       // the one value of it
)

// NodeClaims answers for Karpenter's NodeClaims.
type NodeClaims interface {
	// Of returns the NodeClaim behind the node, or nil.
	Of(node *corev1.Node) *karpv1.NodeClaim
	// Deleting returns the names of the nodes whose NodeClaim is being deleted.
	Deleting() []string
	// NodePools returns what Karpenter could launch nodes from.
	NodePools() []*karpv1.NodePool
	// Listen calls changed with a node's name when its NodeClaim may have changed its disruption, and repooled when a
	// NodePool did so to the places that there could be. The result ends it.
	Listen(changed func(node string), repooled func()) (remove func(), err error)
}

// Options are what a user chooses of the controller.
type Options struct {
	Disruption *Config
	// Mark has the verdicts that are marked.
	Mark map[fate.Verdict]bool
	// Queue is where the controller puts its keys and gets them from.
	Queue *queue.Queue
	// DryRun logs what would be written and writes nothing.
	DryRun bool
	// Identity names this process in its Events.
	Identity string
	// Claims is nil in a cluster without Karpenter.
	Claims NodeClaims
	// Losses bound the durable record of what was lost.
	Losses LossOptions
	// Metrics count what the controller does; nil counts for nobody.
	Metrics *metrics.Metrics
	// Hub shows what the controller works out; nil shows it to nobody.
	Hub *stream.Hub
	// Clock is time.Now outside tests.
	Clock func() time.Time
}

// Controller keeps the markers on pods what DESIGN.md section 5 says they should be.
type Controller struct {
	options   Options
	informers *informers.Set
	clients   informers.Clients
	owners    *owners
	memory    *memory
	writer    writer
	herald    herald
	refusals  *refusals.Log
	queue     *queue.Queue
	recorder  recorder
	tolds     tolds
	requests  requests
	reactions *reactions
	show      *show

	interruptions *interruptions

	mu   sync.Mutex
	lost map[string]*corev1.Node // guarded by mu; nodes that no longer exist but have pods, by name
}

// New makes a controller over caches that must not have been started yet: it adds its indexes to them.
func New(clients informers.Clients, set *informers.Set, o Options) (*Controller, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics("", o.Disruption)
	}
	refusals := refusals.New(o.Clock)
	c := &Controller{
		options:   o,
		informers: set,
		clients:   clients,
		owners:    newOwners(set, clients.Dynamic, o.Clock),
		memory:    newMemory(),
		writer:    newStatusWriter(clients.Typed),
		herald: herald{events.New(events.Options{
			Client: clients.Typed, Instance: o.Identity, Clock: o.Clock, Refused: refusals.Report,
			Dropped: o.Metrics.EventDropped, Failed: o.Metrics.EventFailed, DryRun: o.DryRun,
		})},
		refusals: refusals,

		interruptions: newInterruptions(clients.Typed, refusals),

		queue: o.Queue,
		lost:  map[string]*corev1.Node{},

		tolds:     newTolds(),
		requests:  newRequests(),
		reactions: newReactions(),
		show:      newShow(o.Hub),
	}
	c.recorder = c.newRecorder()
	o.Metrics.Count(metrics.Counts{RecordsDropped: c.recorder.Dropped, RecordsFailed: c.recorder.Failed})
	if o.DryRun {
		c.writer = newDryWriter()
	}
	if err := set.Pods().AddIndexers(cache.Indexers{markedBy: indexMarkedBy, markedFor: indexMarkedFor}); err != nil {
		return nil, fmt.Errorf("indexing pods by marker: %w", err)
	}
	if err := set.Nodes().AddIndexers(cache.Indexers{signalledNode: c.indexSignalled}); err != nil {
		return nil, fmt.Errorf("indexing nodes by signal: %w", err)
	}
	o.Queue.Handle(c, NodeKey, PodKey, ClaimKey)
	return c, nil
}

// Serve sends Events and records and keeps the leader's metrics.
func (c *Controller) Serve(lead context.Context, told <-chan struct{}) {
	var serving sync.WaitGroup
	serving.Go(func() { c.herald.Run(lead, told) })
	serving.Go(func() { c.recorder.Run(lead, told) })
	serving.Go(func() { c.measure(lead, told) })
	serving.Wait()
}

// Reconcile makes the markers right that the key asks for.
func (c *Controller) Reconcile(lead context.Context, key queue.Key) (again time.Duration, err error) {
	switch key.Kind {
	case PodKey:
		return c.reconcilePod(lead, key)
	case ClaimKey:
		c.reconcileClaim(lead, key.Name)
		return 0, nil
	}
	return c.reconcileNode(lead, key.Name)
}
