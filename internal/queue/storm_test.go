package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	stormKeys      = 12
	stormProducers = 8
	stormWorkers   = 8
)

// storm reconciles keys that many producers ask for, counts what it sees itself, and fails or asks for more at random.
type storm struct {
	t       *testing.T
	retries bool // some runs fail, some ask to be repeated
	counts  [stormKeys]struct {
		running atomic.Bool
		runs    atomic.Int64
		failed  atomic.Int64
	}
	delays  atomic.Int64 // AddAfter and retries that were asked for
	calming atomic.Bool  // no more of that
}

func (s *storm) Listen() (remove func(), err error)            { return func() {}, nil }
func (s *storm) Serve(_ context.Context, told <-chan struct{}) { <-told }

func (s *storm) Reconcile(_ context.Context, key Key) (again time.Duration, err error) {
	var n int
	if _, err := fmt.Sscan(key.Name, &n); err != nil {
		return 0, err
	}
	count := &s.counts[n]
	if !count.running.CompareAndSwap(false, true) {
		s.t.Errorf("%s is worked on twice at a time", key)
	}
	defer count.running.Store(false)
	count.runs.Add(1)
	if !s.retries || s.calming.Load() {
		return 0, nil
	}
	switch rand.IntN(5) {
	case 0:
		count.failed.Add(1)
		s.delays.Add(1)
		return 0, errors.New(strings.Repeat("refused ", 100))
	case 1:
		s.delays.Add(1)
		return time.Duration(1 + rand.IntN(int(time.Millisecond))), nil
	}
	return 0, nil
}

func stormKey(n int) Key { return Key{Kind: "k", Name: fmt.Sprint(n)} }

// produce asks for keys at random, and returns how many Adds that were.
func (s *storm) produce(q *Queue, adds int) {
	for range adds {
		key := stormKey(rand.IntN(stormKeys))
		if rand.IntN(8) == 0 {
			runtime.Gosched() // to the workers
		}
		switch choice := rand.IntN(10); {
		case choice == 0 && s.retries:
			s.delays.Add(1)
			q.AddAfter(key, time.Duration(rand.IntN(int(2*time.Millisecond))))
			q.Add(key)
		case choice < 3:
			q.AddRanked(key, Rank{Class: Class(rand.IntN(3)), Kill: time.Now().Add(time.Duration(rand.IntN(1000)))})
		default:
			q.Add(key)
		}
	}
}

// TestStorm has many producers, workers and a reader at once. At no moment may a reader see what cannot be, and in the end
// the record must be what the producers and the workers counted themselves.
func TestStorm(t *testing.T) {
	for _, retries := range []bool{false, true} {
		t.Run(fmt.Sprintf("retries=%t/real clock", retries), func(t *testing.T) { runStorm(t, retries, full(3000, 50000)) })
		t.Run(fmt.Sprintf("retries=%t/fake clock", retries), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runStorm(t, retries, full(3000, 20000)) })
		})
	}
}

func runStorm(t *testing.T, retries bool, adds int) {
	s := &storm{t: t, retries: retries}
	q := New(Options{})
	q.Handle(s, "k")
	stop, ran := make(chan struct{}), make(chan error, 1)
	go func() { ran <- q.Run(t.Context(), stop, stormWorkers) }()
	var producing, reading sync.WaitGroup
	for range stormProducers {
		producing.Go(func() { s.produce(q, adds) })
	}
	enough, followed := make(chan struct{}), reader{}
	reading.Go(func() {
		for tick := time.NewTicker(100 * time.Microsecond); ; {
			followed.read(t, q.recorder)
			mustAddUp(t, q.Totals())
			select {
			case <-tick.C:
			case <-enough:
				tick.Stop()
				return
			}
		}
	})
	producing.Wait()
	s.calming.Store(true)
	for pause := time.NewTicker(time.Millisecond); !atRest(q.Totals()); {
		<-pause.C
	}
	close(enough)
	reading.Wait()
	followed.read(t, q.recorder)
	close(stop)
	if err := <-ran; err != nil {
		t.Error(err)
	}
	s.compare(q, followed, int64(stormProducers*adds))
}

func atRest(t Totals) bool { return t.Depth+t.Running+t.BackingOff+t.Waiting == 0 && t.Done > 0 }

// mustAddUp checks what holds of the totals at every moment.
func mustAddUp(t *testing.T, is Totals) {
	if is.Started-is.Done != int64(is.Running) || is.Depth+is.Running+is.BackingOff+is.Waiting > is.Known {
		t.Errorf("%+v do not add up", is)
	}
	if (is.Depth == 0) != is.Oldest.IsZero() {
		t.Errorf("%d are queued, the oldest since %v", is.Depth, is.Oldest)
	}
	if open := is.Added - is.Started; open < int64(is.Depth) || open > int64(is.Depth+is.Running) {
		t.Errorf("%+v: %d runs are to come", is, open)
	}
}

// compare holds the record, at rest, against the counts of those who asked and of those who worked. Of keys that were asked
// for later it cannot be counted from outside how many of the times fell together.
func (s *storm) compare(q *Queue, followed reader, asked int64) {
	var sum KeyView
	for n := range s.counts {
		view, count := followed.keys[stormKey(n)], &s.counts[n]
		if view.State != Idle || view.Again || view.Failures > 0 || !view.Until.IsZero() {
			s.t.Errorf("%+v is not at rest", view)
		}
		if view.Added != count.runs.Load() || view.Started != count.runs.Load() || view.Failed != count.failed.Load() {
			s.t.Errorf("%+v, want %d runs, %d failed", view, count.runs.Load(), count.failed.Load())
		}
		if len(view.LastError) > lastErrorBytes || (view.LastError == "") != (view.Failed == 0) {
			s.t.Errorf("%+v: last error of %d bytes", view, len(view.LastError))
		}
		sum.Added += view.Added
		sum.DedupedQueued += view.DedupedQueued
		sum.DedupedRunning += view.DedupedRunning
		sum.Failed += view.Failed
	}
	adds := sum.Added + sum.DedupedQueued + sum.DedupedRunning
	if adds < asked || adds > asked+s.delays.Load() {
		s.t.Errorf("%d were added or fell together, want %d and up to %d that were to come later", adds, asked, s.delays.Load())
	}
	total := q.Totals()
	if total.Added != sum.Added || total.Started != sum.Added || total.Done != sum.Added || total.Failed != sum.Failed ||
		total.Deduped != sum.DedupedQueued+sum.DedupedRunning || total.Workers != stormWorkers || total.Known != stormKeys {
		s.t.Errorf("%+v, want the sum of the keys, %+v", total, sum)
	}
	s.t.Logf("%d asked for, %d runs, %d failed, %d fell together while queued, %d while running, %d times to come later",
		asked, sum.Added, sum.Failed, sum.DedupedQueued, sum.DedupedRunning, s.delays.Load())
}
