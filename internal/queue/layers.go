package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// The queue is client-go's own rate-limiting workqueue, in its three layers. Each is wrapped, so that the recorder hears
// of all that happens, and the innermost one keeps its keys in the recorder's order (facts/terminal-ui.md A4.4):
//
//	rate limiter (limiter)      how often a key failed
//	└ delaying queue (delays)   when it is to be looked at again
//	  └ queue (keys)            what an Add comes to; Done
//	    └ hooks                 queued, started, asked for while it is queued
//
// The locks, in the order in which they are taken: keys.ops, around Add and Done and never around Get, which blocks;
// the workqueue's own; the recorder's.

const name = "nodes" // in the metrics

// newLayers makes client-go's queue. The clock and the metrics are given to every layer: none passes them on to one that
// is wrapped.
func newLayers(o Options, recorder *recorder) workqueue.TypedRateLimitingInterface[Key] {
	limited := limiter{workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry), recorder}
	return workqueue.NewTypedRateLimitingQueueWithConfig[Key](limited, workqueue.TypedRateLimitingQueueConfig[Key]{
		Name: name, MetricsProvider: o.Metrics, Clock: o.Clock, DelayingQueue: newDelays(o, newKeys(o, recorder))})
}

// limiter hears of failures and of the end of them.
type limiter struct {
	workqueue.TypedRateLimiter[Key]
	recorder *recorder
}

func (l limiter) When(key Key) time.Duration {
	after := l.TypedRateLimiter.When(key)
	l.recorder.failed(key, l.TypedRateLimiter.NumRequeues(key))
	return after
}

func (l limiter) Forget(key Key) {
	l.TypedRateLimiter.Forget(key)
	l.recorder.succeeded(key)
}

// delays hears of keys that are to be looked at later.
type delays struct {
	workqueue.TypedDelayingInterface[Key]
	keys     *keys
	recorder *recorder
	retries  workqueue.CounterMetric // nil counts for nobody
}

func newDelays(o Options, keys *keys) *delays {
	d := &delays{keys: keys, recorder: keys.recorder, TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[Key]{Name: name, MetricsProvider: o.Metrics, Clock: o.Clock, Queue: keys})}
	if o.Metrics != nil {
		d.retries = o.Metrics.NewRetriesMetric(name)
	}
	return d
}

// Add passes by the delaying queue's own, so that keys.Add is called by the waiting loop alone.
func (d *delays) Add(key Key) { d.keys.add(key, false) }

// AddAfter has the key added when the time has passed. Of several times the first stands, as in client-go; but it is
// decided here, so that the record is never of a time that the waiting loop does not have:
//
//  1. a key waits until 12:00;
//  2. an AddAfter until 12:05 is on its way to the waiting loop;
//  3. the loop adds the key of 12:00, and the record is cleared;
//  4. the loop takes in the 12:05: the key waits, and the record says that it does not.
//
// The later time of 2 is not passed on here. What is recorded is followed by an Add in any case: it is passed on after it
// was recorded, and each Add by the loop clears what is recorded at most too early.
func (d *delays) AddAfter(key Key, after time.Duration) {
	if after > 0 && !d.recorder.wait(key, after) {
		if d.retries != nil {
			d.retries.Inc()
		}
		return
	}
	d.TypedDelayingInterface.AddAfter(key, after)
}

// keys hears of what no hook tells: what an Add of a running key comes to, and the end of a run. Add and Done are made one
// at a time; Get takes queued keys only. So between a call and the note of it no other call changes what is noted.
type keys struct {
	workqueue.TypedInterface[Key]
	recorder *recorder
	hooks    *hooks

	ops    sync.Mutex
	closed bool // guarded by ops
}

func newKeys(o Options, recorder *recorder) *keys {
	hooks := &hooks{recorder: recorder}
	return &keys{hooks: hooks, recorder: recorder, TypedInterface: workqueue.NewTypedWithConfig(
		workqueue.TypedQueueConfig[Key]{Name: name, MetricsProvider: o.Metrics, Clock: o.Clock, Queue: hooks})}
}

// Add is called by the waiting loop, when the time has come that a key waited for.
func (k *keys) Add(key Key) { k.add(key, true) }

func (k *keys) add(key Key, timer bool) {
	k.ops.Lock()
	defer k.ops.Unlock()
	if k.closed {
		return // the queue would drop it without a word
	}
	k.hooks.called, k.hooks.timer = false, timer
	k.TypedInterface.Add(key)
	if !k.hooks.called {
		k.recorder.during(key, timer)
	}
}

func (k *keys) Done(key Key) {
	k.ops.Lock()
	defer k.ops.Unlock()
	k.hooks.called = false
	k.TypedInterface.Done(key)
	if !k.hooks.called {
		k.recorder.done(key)
	}
}

func (k *keys) ShutDown() {
	k.ops.Lock()
	defer k.ops.Unlock()
	k.closed = true
	k.TypedInterface.ShutDown()
}

// hooks are what the workqueue keeps its keys in. They are called under its lock, so they must never call it.
type hooks struct {
	recorder *recorder

	// Guarded by keys.ops, which Add and Done hold: they alone make the workqueue call Push and Touch.
	called bool
	timer  bool // the Add is the waiting loop's

	length int // guarded by the workqueue's lock
}

var _ workqueue.Queue[Key] = (*hooks)(nil)

func (h *hooks) Push(key Key) {
	h.called = true
	h.length++
	h.recorder.push(key, h.timer)
}

func (h *hooks) Touch(key Key) {
	h.called = true
	h.recorder.touch(key, h.timer)
}

func (h *hooks) Pop() Key {
	h.length--
	return h.recorder.pop()
}

func (h *hooks) Len() int { return h.length }
