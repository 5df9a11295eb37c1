package queue

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	benchKeys = 500
	// benchRounds take a millisecond each, so that on a busy machine most of them are not interrupted.
	benchRounds = 501
)

// BenchmarkObserved compares the observed queue with client-go's bare one, round by round in the same process, in time and
// allocations per event. An event is what the record hears of: a key is queued, is asked for again, runs, is done.
func BenchmarkObserved(b *testing.B) {
	for _, tc := range []struct {
		name   string
		events int // per key and round
		round  func(q workqueue.TypedRateLimitingInterface[Key], keys []Key)
	}{
		{"lives", 3, live},
		{"asked-for-again", 8, askAgain},
	} {
		b.Run(tc.name, func(b *testing.B) {
			bare := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry))
			defer bare.ShutDown()
			observed := New(Options{})
			defer observed.keys.ShutDown()
			keys := make([]Key, benchKeys)
			for i := range keys {
				keys[i] = numbered(i)
				observed.AddRanked(keys[i], Rank{Class: Class(i % 3), Kill: noon.Add(time.Duration(i) * time.Second)})
			}
			for range keys {
				finish(observed.keys)
			}
			once := func(q workqueue.TypedRateLimitingInterface[Key]) cost {
				return measure(benchKeys*tc.events, func() { tc.round(q, keys) })
			}
			once(bare) // both have their memory after one round
			once(observed.keys)
			var without, with []cost
			for b.Loop() {
				for range benchRounds {
					without = append(without, once(bare))
					with = append(with, once(observed.keys))
				}
			}
			was, is := typical(without), typical(with)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(was.ns, "bare-ns/event")
			b.ReportMetric(is.ns, "observed-ns/event")
			b.ReportMetric(is.ns-was.ns, "more-ns/event")
			b.ReportMetric(was.allocs, "bare-allocs/event")
			b.ReportMetric(is.allocs, "observed-allocs/event")
		})
	}
}

// live has every key queued, then run and done.
func live(q workqueue.TypedRateLimitingInterface[Key], keys []Key) {
	for _, key := range keys {
		q.Add(key)
	}
	for range keys {
		finish(q)
	}
}

// askAgain has each key asked for twice more while it is queued, and once while it runs.
func askAgain(q workqueue.TypedRateLimitingInterface[Key], keys []Key) {
	for range 3 {
		for _, key := range keys {
			q.Add(key)
		}
	}
	for range keys {
		key, _ := q.Get()
		q.Add(key)
		q.Forget(key)
		q.Done(key)
	}
	for range keys {
		finish(q)
	}
}

func finish(q workqueue.TypedRateLimitingInterface[Key]) {
	key, _ := q.Get()
	q.Forget(key)
	q.Done(key)
}

// BenchmarkChanges is for how long the longest read holds the lock: the first one, of as many idle keys as are remembered,
// which goes through all of them and returns 512.
func BenchmarkChanges(b *testing.B) {
	c := idled(idleAtMost)
	var times []cost
	for b.Loop() {
		for range benchRounds {
			times = append(times, measure(1, func() { c.changes(0) }))
		}
	}
	is := typical(times)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(is.ns/1000, "µs/read")
	b.ReportMetric(is.allocs, "allocs/read")
}

// A cost is what one event takes.
type cost struct{ ns, allocs float64 }

func measure(events int, do func()) cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	do()
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	return cost{float64(took) / float64(events), float64(after.Mallocs-before.Mallocs) / float64(events)}
}

// typical is the median of each.
func typical(costs []cost) cost {
	median := func(of func(cost) float64) float64 {
		var values []float64
		for _, c := range costs {
			values = append(values, of(c))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return cost{median(func(c cost) float64 { return c.ns }), median(func(c cost) float64 { return c.allocs })}
}
