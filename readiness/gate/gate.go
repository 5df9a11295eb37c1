package gate

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/events"
	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/internal/refusals"
	"github.com/rollcall-dev/rollcall/readiness"
)

// NodeKey is the kind of the gate's keys: the readiness of the node of that name.
const NodeKey = "Readiness"

// expects is the index of nodes by the static pods that are expected on them, as namespace/name.
const expects = "expects"

// Options are what a user chooses of the gate.
type Options struct {
	// Taint is what holds a node.
	Taint readiness.Taint
	// Condition is the type of the Node's condition.
	Condition string
	// Settle is how long all mirrors must have stood before the condition is True.
	Settle time.Duration
	// HeldWarning is after how long an Event says that a node is held; zero for never.
	HeldWarning time.Duration
	// ReleaseTaint has the gate take the taint away itself once the condition is True.
	ReleaseTaint bool
	// Queue is where the gate puts its keys and gets them from.
	Queue *queue.Queue
	// DryRun logs what would be written and writes nothing.
	DryRun bool
	// Identity names this process in its Events.
	Identity string
	// Metrics count what the gate does; nil counts for nobody.
	Metrics *metrics.Metrics
	// Observer, where set, hears of every node that the gate watches over.
	Observer Observer
	// Clock is time.Now outside tests.
	Clock func() time.Time
}

// A Gate is a queue.Reconciler. It makes its writes under the right to write that Reconcile is given.
type Gate struct {
	options  Options
	client   kubernetes.Interface
	set      *informers.Set
	nodes    listers.NodeLister
	pods     listers.PodLister
	herald   *events.Herald
	refusals *refusals.Log
	causes   *causes

	mu    sync.Mutex
	known map[string]*watch // guarded by mu; by the node's name
}

var _ queue.Reconciler = (*Gate)(nil)

// New makes a gate over caches that must not have been started yet: it adds its index to them.
func New(client kubernetes.Interface, set *informers.Set, o Options) (*Gate, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = metrics.New("", nil, func(string) bool { return false })
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	refused := refusals.New(o.Clock)
	g := &Gate{
		options: o, client: client, set: set,
		nodes: set.Core().V1().Nodes().Lister(), pods: set.Core().V1().Pods().Lister(),
		herald: events.New(events.Options{
			Client: client, Instance: o.Identity, Clock: o.Clock, Refused: refused.Report,
			Dropped: o.Metrics.EventDropped, Failed: o.Metrics.EventFailed, DryRun: o.DryRun,
		}),
		refusals: refused,
		causes:   &causes{client: client, refused: refused.Report},
		known:    map[string]*watch{},
	}
	if err := set.Nodes().AddIndexers(cache.Indexers{expects: indexExpected}); err != nil {
		return nil, fmt.Errorf("indexing nodes by expected static pod: %w", err)
	}
	o.Queue.Handle(g, NodeKey)
	return g, nil
}

// Listen adds the handlers that turn changes into keys. The result removes them.
func (g *Gate) Listen() (remove func(), err error) {
	nodes, err := g.set.Nodes().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: g.nodeAdded, UpdateFunc: g.nodeUpdated, DeleteFunc: g.nodeDeleted,
	})
	if err != nil {
		return nil, err
	}
	pods, err := g.set.Pods().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: g.podChanged, UpdateFunc: g.podUpdated, DeleteFunc: g.podChanged,
	})
	if err != nil {
		_ = g.set.Nodes().RemoveEventHandler(nodes)
		return nil, err
	}
	return func() {
		_ = g.set.Nodes().RemoveEventHandler(nodes)
		_ = g.set.Pods().RemoveEventHandler(pods)
	}, nil
}

// Serve sends Events and has the metrics of nodes that are held, until told closes or lead ends.
func (g *Gate) Serve(lead context.Context, told <-chan struct{}) {
	g.options.Metrics.Held(g.held)
	defer g.options.Metrics.Held(nil)
	g.herald.Run(lead, told)
}

// indexExpected has the static pods that the Node's agent has published for its present boot.
func indexExpected(object any) ([]string, error) {
	node := object.(*corev1.Node)
	if _, there := node.Annotations[readiness.StaticPodsAnnotation]; !there {
		return nil, nil
	}
	expected := readiness.Published(node)
	keys := make([]string, 0, len(expected.Pods))
	for _, pod := range expected.Pods {
		keys = append(keys, pod.Key())
	}
	return keys, nil
}

// concerns tells whether the gate watches over the node: it bears the readiness taint, or its agent has spoken.
func (g *Gate) concerns(node *corev1.Node) bool {
	_, published := node.Annotations[readiness.StaticPodsAnnotation]
	return published || g.options.Taint.On(node)
}

func (g *Gate) enqueue(node string) { g.options.Queue.Add(queue.Key{Kind: NodeKey, Name: node}) }

func (g *Gate) nodeAdded(object any) {
	if node := object.(*corev1.Node); g.concerns(node) {
		g.enqueue(node.Name)
	}
}

func (g *Gate) nodeUpdated(before, after any) {
	old, node := before.(*corev1.Node), after.(*corev1.Node)
	if (g.concerns(old) || g.concerns(node)) && readiness.NodeChanged(old, node, g.options.Condition) {
		g.enqueue(node.Name)
	}
}

func (g *Gate) nodeDeleted(object any) {
	if tombstone, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = tombstone.Obj
	}
	if node, ok := object.(*corev1.Node); ok && g.concerns(node) {
		g.enqueue(node.Name)
	}
}

func (g *Gate) podUpdated(before, after any) {
	if readiness.PodChanged(before.(*corev1.Pod), after.(*corev1.Pod)) {
		g.podChanged(after)
	}
}

// podChanged adds the keys of the nodes that expect a static pod of that name, wherever the pod itself is: one in the
// mirror's place counts too.
func (g *Gate) podChanged(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		slog.Error("a pod without a name was heard of", "error", err)
		return
	}
	nodes, err := g.set.Nodes().GetIndexer().IndexKeys(expects, key)
	if err != nil {
		slog.Error("the nodes that expect a pod are not known", "pod", key, "error", err)
		return
	}
	for _, node := range nodes {
		g.enqueue(node)
	}
}
