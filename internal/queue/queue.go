// Package queue owns the one workqueue of the controller and the workers that empty it: what is waited for, in which
// order, how often it is tried, and what became of each key, for those who want to see it. It knows keys and reconcilers,
// and nothing of what they stand for. docs/queue.md tells it to people.
package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	firstRetry = 50 * time.Millisecond
	// lastRetry is as long as a mark may be missing after the API server is well again.
	lastRetry = 30 * time.Second
	// drainTimeout bounds how long a stop waits for writes in flight. It is shorter than the 30 s that a pod has by
	// default, so that the Lease is released in time.
	drainTimeout = 15 * time.Second
)

// A Reconciler makes reality match, key by key.
type Reconciler interface {
	// Listen adds the handlers that turn changes into keys. Objects that exist already come as added ones, so that nothing
	// else is needed after a start or a change of leader. The result removes them.
	Listen() (remove func(), err error)
	// Reconcile makes reality match for one key. It is level-triggered: it asks what is, never what happened. again is when
	// time alone may change the answer, zero for never. lead is the right to write.
	Reconcile(lead context.Context, key Key) (again time.Duration, err error)
	// Serve does what goes on beside the keys, until told closes or lead ends, and returns when it has ended.
	Serve(lead context.Context, told <-chan struct{})
}

// Queue is the one queue of the controller. A key is in it once, and is never worked on twice at a time. Safe for
// concurrent use.
type Queue struct {
	keys     workqueue.TypedRateLimitingInterface[Key]
	recorder *recorder
	all      []Reconciler
	perKind  map[string]Reconciler
}

// Options are what a Queue may be given. The zero value counts for nobody and goes by the real clock.
type Options struct {
	Metrics workqueue.MetricsProvider
	Clock   clock.WithTicker
}

// New makes a queue that nobody works on yet. It ends with Run.
func New(o Options) *Queue {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	recorder := newRecorder(o.Clock)
	return &Queue{keys: newLayers(o, recorder), recorder: recorder, perKind: map[string]Reconciler{}}
}

// Handle has the keys of the kinds reconciled by r. Call it before Run.
func (q *Queue) Handle(r Reconciler, kinds ...string) {
	q.all = append(q.all, r)
	for _, kind := range kinds {
		q.perKind[kind] = r
	}
}

// Add has the key looked at soon; once, however often it is added before that.
func (q *Queue) Add(key Key) { q.keys.Add(key) }

// AddAfter has the key looked at when the time has passed. Of several times the first stands.
func (q *Queue) AddAfter(key Key, after time.Duration) { q.keys.AddAfter(key, after) }

// AddRanked is Add and Rank.
func (q *Queue) AddRanked(key Key, rank Rank) {
	q.keys.Add(key)
	q.recorder.rank(key, rank)
}

// Rank gives a key that was added its place in the order, at once where it is queued. The key keeps it as long as its
// history is kept; a key that was never given one has the zero Rank.
func (q *Queue) Rank(key Key, rank Rank) { q.recorder.rank(key, rank) }

// Totals are the queue's as a whole, now.
func (q *Queue) Totals() Totals { return q.recorder.total() }

// Changes are the keys that changed since an earlier call returned Next, as they are now; zero asks for all. It looks at
// those keys alone, and what it returns is the caller's.
func (q *Queue) Changes(since uint64) Changes { return q.recorder.changes(since) }

// Run works until stop closes or lead ends. Call it once, with caches that are synced.
//
// lead is the right to write. When it ends (the Lease is lost), writes in flight are cut off at once: another process
// may be writing. When stop closes, what is in flight is finished first, for drainTimeout at most.
func (q *Queue) Run(lead context.Context, stop <-chan struct{}, workers int) error {
	lead, cut := context.WithCancel(lead)
	defer cut()
	removeHandlers, err := q.listen()
	if err != nil {
		return err
	}
	q.recorder.working(workers)
	told := make(chan struct{})
	var beside, working sync.WaitGroup
	for _, r := range q.all {
		beside.Go(func() { r.Serve(lead, told) })
	}
	for range workers {
		working.Go(func() { q.work(lead) })
	}
	slog.Info("working", "workers", workers)

	select {
	case <-stop:
	case <-lead.Done():
	}
	removeHandlers()
	bound := time.AfterFunc(drainTimeout, cut)
	defer bound.Stop()
	q.keys.ShutDown() // no key is handed out once the queue is empty; work drops those that wait
	working.Wait()
	close(told)
	beside.Wait()
	return nil
}

func (q *Queue) listen() (remove func(), err error) {
	var undo []func()
	remove = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, r := range q.all {
		ignore, err := r.Listen()
		if err != nil {
			remove()
			return nil, err
		}
		undo = append(undo, ignore)
	}
	return remove, nil
}

func (q *Queue) work(lead context.Context) {
	for q.processNext(lead) {
	}
}

// processNext takes one key from the queue and reconciles it. An error is reported once, here, and the key comes back.
func (q *Queue) processNext(lead context.Context) bool {
	key, shutdown := q.keys.Get()
	if shutdown {
		return false
	}
	defer q.keys.Done(key)
	// A key that still waits when the controller stops is nobody's loss: the next leader looks at everything.
	if q.keys.ShuttingDown() || lead.Err() != nil {
		return true
	}
	again, err := q.perKind[key.Kind].Reconcile(lead, key)
	if err == nil || lead.Err() == nil && !errors.Is(err, context.Canceled) {
		q.answer(key, again, err)
	}
	return true
}

// answer has the key come back, if it is to.
func (q *Queue) answer(key Key, again time.Duration, err error) {
	if err != nil {
		slog.Warn("a reconcile failed and is tried again", "key", key.String(), "failures", q.keys.NumRequeues(key)+1, "error", err)
		q.recorder.explain(key, err)
		q.keys.AddRateLimited(key)
		return
	}
	q.keys.Forget(key)
	if again > 0 {
		q.keys.AddAfter(key, again)
	}
}
