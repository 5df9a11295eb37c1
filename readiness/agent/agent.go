package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/kubelet"
)

// Config says for which node an Agent works, and how.
type Config struct {
	Node   string // name of the Node
	BootID string // boot of this machine
	// Identity names this agent among others, such as its pod's name.
	Identity string
	// Standalone makes it write the condition as well.
	Standalone  bool
	Taint       readiness.Taint // what should hold the node
	Condition   string          // type of the condition
	Settle      time.Duration   // how long all mirrors must have stood before True
	HeldWarning time.Duration   // after how long without True an Event says so
}

// API is what an Agent needs of the API server. All errors are those of the API.
type API interface {
	// WatchNode calls changed with each version of the Node, nil where there is none, until ctx ends.
	WatchNode(ctx context.Context, changed func(*corev1.Node), failed func(error))
	// WatchPods calls changed with the pods bound to the node, whenever one changes, until ctx ends.
	WatchPods(ctx context.Context, changed func([]*corev1.Pod), failed func(error))
	GetNode(ctx context.Context) (*corev1.Node, error)
	// ApplyStatus server-side applies body to the Node's status, with force.
	ApplyStatus(ctx context.Context, manager string, body []byte) (*corev1.Node, error)
	CreateEvent(ctx context.Context, event *corev1.Event) error
}

// Agent publishes the static pods of one node. Run may be called once.
type Agent struct {
	Config
	Sources []kubelet.Source
	API     API
	Log     *slog.Logger
	Now     func() time.Time

	inbox   chan func()
	choice  *kubelet.Choice
	node    *corev1.Node
	pods    []*corev1.Pod
	listed  bool // pods have been listed
	started time.Time

	published string    // the annotation as this agent wrote it
	restore   time.Time // not before then is an overwritten annotation written again
	settling  readiness.Settling
	holding   readiness.Holding
	warned    bool
	backoff   backoff
	said      map[string]string  // the last message on each subject
	told      map[string]telling // the last Event of each reason
}

// Times of the loop.
const (
	// calm is how long the absence of a first answer may last before it is written to the Node: most kubelets answer sooner.
	calm = 2 * time.Second
	// quarrel is the least time between two corrections of an annotation that somebody else keeps writing.
	quarrel = 10 * time.Second
	// idle is how long the loop sleeps where nothing is due.
	idle = time.Hour
)

// Run works until ctx ends. What stands on the Node stays: it is true for this boot.
func (a *Agent) Run(ctx context.Context) {
	a.inbox, a.said, a.told, a.started = make(chan func()), map[string]string{}, map[string]telling{}, a.Now()
	var names []string
	for _, source := range a.Sources {
		names = append(names, source.Name())
	}
	a.choice = kubelet.NewChoice(names...)
	var running sync.WaitGroup
	a.watch(ctx, &running)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case take := <-a.inbox:
			take()
		case <-timer.C:
		}
		timer.Reset(a.step(ctx))
	}
	running.Wait()
}

// watch starts everything that is listened to.
func (a *Agent) watch(ctx context.Context, running *sync.WaitGroup) {
	for _, source := range a.Sources {
		running.Go(func() {
			source.Run(ctx, func(answer kubelet.Answer) { a.post(ctx, func() { a.hear(source.Name(), answer) }) })
		})
	}
	running.Go(func() {
		a.API.WatchNode(ctx,
			func(node *corev1.Node) { a.post(ctx, func() { a.see(node) }) },
			func(err error) { a.post(ctx, func() { a.failed("watching the Node", err) }) })
	})
	if !a.Standalone {
		return
	}
	running.Go(func() {
		a.API.WatchPods(ctx,
			func(pods []*corev1.Pod) { a.post(ctx, func() { a.pods, a.listed = pods, true }) },
			func(err error) { a.post(ctx, func() { a.failed("watching the pods of the node", err) }) })
	})
}

// post runs f on the loop's goroutine, which owns all state.
func (a *Agent) post(ctx context.Context, f func()) {
	select {
	case a.inbox <- f:
	case <-ctx.Done():
	}
}

func (a *Agent) hear(source string, answer kubelet.Answer) {
	a.choice.Hear(source, answer)
	if answer.State == kubelet.Known {
		a.say(slog.LevelInfo, source, "the source answers")
		return
	}
	a.say(slog.LevelInfo, source, "no answer: "+answer.Why)
}

// see takes a version of the Node, unless it is older than the one that a write of ours returned.
func (a *Agent) see(node *corev1.Node) {
	switch {
	case node == nil:
		a.say(slog.LevelWarn, "node", "there is no Node "+a.Node+" (yet); --node-name must be the kubelet's node name")
	case a.node != nil && a.node.UID == node.UID && older(node, a.node):
		return
	case a.node == nil || a.node.UID != node.UID:
		a.say(slog.LevelInfo, "node", "the Node is there, with UID "+string(node.UID))
		a.published, a.restore = "", time.Time{}
	}
	a.node = node
}

func older(a, b *corev1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// step makes the Node say what is known, and returns when to look again if nothing happens until then.
func (a *Agent) step(ctx context.Context) time.Duration {
	now := a.Now()
	expected := a.choice.Expected(a.BootID, now)
	if expected.Unknown != "" {
		a.say(slog.LevelInfo, "set", "not known yet: "+expected.Unknown)
	}
	if a.node == nil {
		return idle
	}
	if wait := a.backoff.wait(now); wait > 0 {
		return wait
	}
	next, err := a.publish(ctx, expected, now)
	if err == nil && a.Standalone && a.listed {
		var soon time.Duration
		soon, err = a.release(ctx, expected, now)
		next = min(next, soon)
	}
	if ctx.Err() != nil {
		return idle
	}
	if err != nil {
		a.failed("writing to the Node", err)
		return a.backoff.fail(now)
	}
	a.backoff = backoff{}
	return next
}

// backoff spaces attempts that fail.
type backoff struct {
	delay time.Duration
	until time.Time
}

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

func (b *backoff) wait(now time.Time) time.Duration { return b.until.Sub(now) }

func (b *backoff) fail(now time.Time) time.Duration {
	b.delay = min(max(2*b.delay, minBackoff), maxBackoff)
	b.until = now.Add(b.delay)
	return b.delay
}
