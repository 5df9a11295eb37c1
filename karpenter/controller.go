package karpenter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// drainTimeout bounds how long a stop waits for writes in flight. It is shorter than the 30 s that a pod has by default,
// so that the Lease is released in time.
const drainTimeout = 15 * time.Second

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
	// Workers is how many keys are worked on at a time.
	Workers int
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
	herald    *herald
	refusals  *refusals
	queue     queue
	recorder  recorder
	tolds     tolds
	reactions *reactions

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
	refusals := newRefusals(o.Clock)
	c := &Controller{
		options:   o,
		informers: set,
		clients:   clients,
		owners:    newOwners(set, clients.Dynamic, o.Clock),
		memory:    newMemory(),
		writer:    newStatusWriter(clients.Typed),
		herald:    newHerald(clients.Typed, o.Identity, o.Clock, refusals, o.DryRun),
		refusals:  refusals,

		interruptions: newInterruptions(clients.Typed, refusals),

		queue: newQueue(o.Metrics.Queues()),
		lost:  map[string]*corev1.Node{},

		tolds:     newTolds(),
		reactions: newReactions(),
	}
	c.recorder = c.newRecorder()
	o.Metrics.Count(metrics.Counts{
		EventsDropped: c.herald.dropped.Load, EventsFailed: c.herald.failed.Load,
		RecordsDropped: c.recorder.Dropped, RecordsFailed: c.recorder.Failed,
	})
	if o.DryRun {
		c.writer = newDryWriter()
	}
	if err := set.Pods().AddIndexers(cache.Indexers{markedBy: indexMarkedBy, markedFor: indexMarkedFor}); err != nil {
		return nil, fmt.Errorf("indexing pods by marker: %w", err)
	}
	if err := set.Nodes().AddIndexers(cache.Indexers{signalledNode: c.indexSignalled}); err != nil {
		return nil, fmt.Errorf("indexing nodes by signal: %w", err)
	}
	return c, nil
}

// Run works until stop closes or lead ends. Call it once, with caches that are synced.
//
// lead is the right to write. When it ends (the Lease is lost), writes in flight are cut off at once: another process
// may be writing. When stop closes, what is in flight is finished first, for drainTimeout at most.
func (c *Controller) Run(lead context.Context, stop <-chan struct{}) error {
	lead, cut := context.WithCancel(lead)
	defer cut()
	removeHandlers, err := c.listen()
	if err != nil {
		return err
	}
	told := make(chan struct{})
	var heralds, workers sync.WaitGroup
	heralds.Go(func() { c.herald.run(lead, told) })
	heralds.Go(func() { c.recorder.Run(lead, told) })
	heralds.Go(func() { c.measure(lead, told) })
	for range c.options.Workers {
		workers.Go(func() { c.work(lead) })
	}
	slog.Info("working", "workers", c.options.Workers, "dryRun", c.options.DryRun)

	select {
	case <-stop:
	case <-lead.Done():
	}
	removeHandlers()
	bound := time.AfterFunc(drainTimeout, cut)
	defer bound.Stop()
	c.queue.ShutDown() // no key is handed out once the queue is empty; work drops those that wait
	workers.Wait()
	close(told)
	heralds.Wait()
	return nil
}

func (c *Controller) work(lead context.Context) {
	for c.processNext(lead) {
	}
}

// processNext takes one key from the queue and reconciles it. An error is reported once, here, and the key comes back.
func (c *Controller) processNext(lead context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	// A key that still waits when the controller stops is nobody's loss: the next leader looks at everything.
	if c.queue.ShuttingDown() || lead.Err() != nil {
		return true
	}
	again, err := c.reconcile(lead, key)
	switch {
	case err != nil && (lead.Err() != nil || errors.Is(err, context.Canceled)):
	case err != nil:
		slog.Warn("a reconcile failed and is tried again", "key", key.String(), "failures", c.queue.NumRequeues(key)+1, "error", err)
		c.queue.AddRateLimited(key)
	default:
		c.queue.Forget(key)
		if again > 0 {
			c.queue.AddAfter(key, again)
		}
	}
	return true
}

// reconcile makes reality match for one key. It is level-triggered: it asks what is, never what happened. again is when
// time alone may change the answer, zero for never.
func (c *Controller) reconcile(lead context.Context, key Key) (again time.Duration, err error) {
	switch key.Kind {
	case PodKey:
		return c.reconcilePod(lead, key)
	case ClaimKey:
		c.reconcileClaim(lead, key.Name)
		return 0, nil
	}
	return c.reconcileNode(lead, key.Name)
}
