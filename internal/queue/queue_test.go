package queue

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// script answers runs of keys one after the other, each after it took a second.
type script struct {
	answers []answer
	order   []string // the names of the keys, as they were run
}

type answer struct {
	again time.Duration
	err   error
}

func (s *script) Listen() (remove func(), err error)            { return func() {}, nil }
func (s *script) Serve(_ context.Context, told <-chan struct{}) { <-told }

func (s *script) Reconcile(_ context.Context, key Key) (again time.Duration, err error) {
	s.order = append(s.order, key.Name)
	time.Sleep(time.Second)
	if len(s.answers) == 0 {
		return 0, nil
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	return next.again, next.err
}

// run works with one worker until the test's end, within a bubble of fake time.
func run(t *testing.T, q *Queue) {
	stop, ran := make(chan struct{}), make(chan error, 1)
	go func() { ran <- q.Run(t.Context(), stop, 1) }()
	t.Cleanup(func() {
		close(stop)
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// view is the one key that the queue knows.
func view(t *testing.T, q *Queue) KeyView {
	t.Helper()
	synctest.Wait()
	views := q.Changes(0).Views
	if len(views) != 1 {
		t.Fatalf("%d keys are known, want one", len(views))
	}
	return views[0]
}

// TestLifeOfAKey follows one key through all states.
func TestLifeOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		s := &script{answers: []answer{{err: refused}, {err: refused}, {again: time.Minute}, {}}}
		q := New(Options{})
		q.Handle(s, "k")
		start := time.Now()
		key := stormKey(1)
		q.AddRanked(key, Rank{Class: Pending})
		q.Add(key)
		at := func(step string, want KeyView) {
			t.Helper()
			want.Key, want.Rank = key, Rank{Class: Pending}
			if got := view(t, q); got != want {
				t.Errorf("%s, after %v:\n%+v, want\n%+v", step, time.Since(start), got, want)
			}
		}
		at("asked for twice", KeyView{State: Queued, Since: start, Added: 1, DedupedQueued: 1})

		run(t, q)
		at("taken", KeyView{State: Running, Since: start, Added: 1, DedupedQueued: 1, Started: 1})
		failed := KeyView{State: BackingOff, Since: start.Add(time.Second), Until: start.Add(time.Second + firstRetry), Added: 1, DedupedQueued: 1,
			Started: 1, Failed: 1, Failures: 1, LastError: "refused", LastDuration: time.Second}
		time.Sleep(time.Second)
		at("failed", failed)

		again := start.Add(time.Second + firstRetry)
		time.Sleep(firstRetry)
		running := failed
		running.State, running.Since, running.Until, running.Added, running.Started = Running, again, time.Time{}, 2, 2
		at("tried again", running)
		time.Sleep(time.Second)
		failed = running
		failed.State, failed.Since, failed.Until = BackingOff, again.Add(time.Second), again.Add(time.Second+2*firstRetry)
		failed.Failed, failed.Failures = 2, 2
		at("failed again", failed)

		again = failed.Until
		q.AddAfter(key, time.Hour) // the retry is before that
		at("asked for later than that", failed)
		time.Sleep(2*firstRetry + time.Second)
		waits := failed
		waits.State, waits.Since, waits.Until, waits.Added, waits.Started, waits.Failures = Waiting, again.Add(time.Second), again.Add(time.Second+time.Minute), 3, 3, 0
		at("it worked", waits)

		q.Add(key)
		runs := waits
		runs.State, runs.Since, runs.Added, runs.Started = Running, time.Now(), 4, 4
		at("asked for while it waits", runs)
		q.Add(key)
		runs.Again, runs.Added = true, 5
		at("asked for while it runs", runs)
		q.Add(key)
		runs.DedupedRunning = 1
		at("asked for twice while it runs", runs)
		time.Sleep(2 * time.Minute)
		ended := waits.Until.Add(time.Second) // a minute later its time had come
		at("at rest", KeyView{State: Idle, Since: ended, Added: 6, DedupedQueued: 1, DedupedRunning: 1, Started: 6,
			Failed: 2, LastError: "refused", LastDuration: time.Second})
	})
}

// TestTheMostUrgentIsNext has a single worker busy while keys of all ranks come.
func TestTheMostUrgentIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		q := New(Options{})
		q.Handle(s, "k")
		run(t, q)
		add := func(name string, rank Rank) { q.AddRanked(Key{Kind: "k", Name: name}, rank) }
		add("first", Rank{})
		synctest.Wait()
		q.Add(Key{Kind: "k", Name: "rest"})
		add("pending", Rank{Class: Pending})
		add("in an hour", Rank{Class: Committed, Kill: time.Now().Add(time.Hour)})
		add("in a minute", Rank{Class: Committed, Kill: time.Now().Add(time.Minute)})
		add("now", Rank{Class: Committed})
		q.Rank(Key{Kind: "k", Name: "in an hour"}, Rank{Class: Committed, Kill: time.Now().Add(time.Second)}) // another deadline became known
		q.Rank(Key{Kind: "k", Name: "nobody"}, Rank{Class: Committed})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got, want := strings.Join(s.order, ", "), "first, now, in an hour, in a minute, pending, rest"; got != want {
			t.Errorf("the order was %s, want %s", got, want)
		}
	})
}

func TestErrorsAreShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{err: errors.New("x" + strings.Repeat("é", 1000))}}}
		q := New(Options{})
		q.Handle(s, "k")
		run(t, q)
		q.Add(stormKey(1))
		time.Sleep(time.Second)
		if got := view(t, q).LastError; len(got) != lastErrorBytes-1 || !utf8.ValidString(got) {
			t.Errorf("the last error has %d bytes, valid %t, want %d and no half a letter", len(got), utf8.ValidString(got), lastErrorBytes-1)
		}
	})
}

// counted is a metric of any sort that counts its calls.
type counted struct {
	inc, dec, observed, half atomic.Int64
}

func (c *counted) Inc()            { c.inc.Add(1) }
func (c *counted) Dec()            { c.dec.Add(1) }
func (c *counted) Observe(float64) { c.observed.Add(1) }

func (c *counted) Set(v float64) {
	if v >= 0.5 {
		c.half.Add(1)
	}
}

// provider has one metric of each name of the queue's, and no other.
type provider struct {
	t                                                            *testing.T
	depth, adds, latency, duration, unfinished, longest, retries counted
}

func (p *provider) of(queue string, c *counted) *counted {
	if queue != "nodes" {
		p.t.Errorf("a metric of the queue %q", queue)
	}
	return c
}

func (p *provider) NewDepthMetric(n string) workqueue.GaugeMetric       { return p.of(n, &p.depth) }
func (p *provider) NewAddsMetric(n string) workqueue.CounterMetric      { return p.of(n, &p.adds) }
func (p *provider) NewLatencyMetric(n string) workqueue.HistogramMetric { return p.of(n, &p.latency) }
func (p *provider) NewWorkDurationMetric(n string) workqueue.HistogramMetric {
	return p.of(n, &p.duration)
}
func (p *provider) NewRetriesMetric(n string) workqueue.CounterMetric { return p.of(n, &p.retries) }
func (p *provider) NewUnfinishedWorkSecondsMetric(n string) workqueue.SettableGaugeMetric {
	return p.of(n, &p.unfinished)
}
func (p *provider) NewLongestRunningProcessorSecondsMetric(n string) workqueue.SettableGaugeMetric {
	return p.of(n, &p.longest)
}

// TestTheWorkqueuesMetricsAreKept compares client-go's own metrics with what was done.
func TestTheWorkqueuesMetricsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{t: t}
		s := &script{answers: []answer{{err: errors.New("refused")}}}
		q := New(Options{Metrics: p})
		q.Handle(s, "k")
		run(t, q)
		q.Add(stormKey(1))
		q.Add(stormKey(2))
		q.AddAfter(stormKey(2), time.Minute)
		q.AddAfter(stormKey(2), time.Hour) // comes to nothing, and is counted as client-go counts it
		time.Sleep(10 * time.Second)
		synctest.Wait()
		total := q.Totals()
		for what, got := range map[string]int64{
			"adds": p.adds.inc.Load(), "depth up": p.depth.inc.Load(), "depth down": p.depth.dec.Load(), "latencies": p.latency.observed.Load(),
			"durations": p.duration.observed.Load(), "retries": p.retries.inc.Load(), "added": total.Added,
		} {
			if got != 3 {
				t.Errorf("%s: %d, want 3", what, got)
			}
		}
		if p.unfinished.half.Load() == 0 || p.longest.half.Load() == 0 {
			t.Error("nothing ever ran for half a second, want runs of a second")
		}
	})
}

// TestNothingIsAddedAfterTheEnd stops a queue while a key is worked on: that one is finished, the one that waits is handed
// out and dropped, and one that is added later is dropped by client-go, and so by the record.
func TestNothingIsAddedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		q := New(Options{})
		q.Handle(s, "k")
		q.Add(stormKey(1))
		q.Add(stormKey(2))
		stop, ran := make(chan struct{}), make(chan error, 1)
		go func() { ran <- q.Run(t.Context(), stop, 1) }()
		synctest.Wait() // the worker is in the first key
		close(stop)
		if err := <-ran; err != nil {
			t.Error(err)
		}
		q.Add(stormKey(3))
		total := q.Totals()
		if total.Known != 2 || total.Added != 2 || total.Done != 2 || !slices.Equal(s.order, []string{stormKey(1).Name}) {
			t.Errorf("%+v and runs of %v, want the first key run and the second dropped", total, s.order)
		}
	})
}

// TestNoKeyWaitsUnseen asks for a key at a later time at the moment when its first time has come and is not noted yet: what
// is shown to be idle must not come back by itself (the interleaving above AddAfter).
func TestNoKeyWaitsUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := newRecorder(clock.RealClock{})
		o := Options{Clock: clock.RealClock{}}
		inner := newKeys(o, recorder)
		q := newDelays(o, inner)
		defer q.ShutDown()
		key := stormKey(1)
		q.AddAfter(key, time.Second)
		synctest.Wait()
		inner.ops.Lock() // the waiting loop gets as far as this
		time.Sleep(time.Second)
		for range 1000 {
			runtime.Gosched()
		}
		q.AddAfter(key, time.Minute)
		inner.ops.Unlock()
		synctest.Wait()
		got, _ := q.Get()
		q.Done(got)
		if total := recorder.total(); total.Known != 1 || total.Waiting != 0 || total.Done != 1 {
			t.Errorf("%+v, want one key at rest", total)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if total := recorder.total(); total.Added != 1 {
			t.Errorf("%+v: the key came back", total)
		}
	})
}
