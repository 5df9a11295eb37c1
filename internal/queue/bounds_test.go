package queue

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// idled makes a recorder that knows n keys, all at rest.
func idled(n int) *recorder {
	c := newRecorder(clock.RealClock{})
	for i := range n {
		pass(c, numbered(i))
	}
	return c
}

// pass has a key queued, run and at rest again.
func pass(c *recorder, key Key) {
	c.push(key, false)
	c.pop()
	c.done(key)
}

func numbered(i int) Key { return Key{Kind: "k", Name: fmt.Sprintf("%06d", i)} }

// TestHistoryIsBounded has more keys than are remembered. Those of longest ago are forgotten, which is counted and told.
func TestHistoryIsBounded(t *testing.T) {
	c := idled(idleAtMost)
	before := c.changes(c.version).Next
	const more = changesAtMost + 100
	for i := range more {
		pass(c, numbered(idleAtMost+i))
	}
	c.push(numbered(0), false) // it comes back
	var gone []Key
	var views []KeyView
	for next := before; ; {
		changes := c.changes(next)
		gone, views = append(gone, changes.Gone...), append(views, changes.Views...)
		if next = changes.Next; !changes.More {
			break
		}
	}
	want := make([]Key, 0, more)
	for i := range more {
		want = append(want, numbered(i))
	}
	if !slices.Equal(gone, want[1:]) {
		t.Errorf("%d are gone, want the first %d but the one that is back, each once and in order", len(gone), more)
	}
	if len(views) != more+1 || views[more].Key != numbered(0) || views[more].Started != 0 {
		t.Errorf("%d have changed, want %d, the last of them anew", len(views), more+1)
	}
	if total := c.total(); total.Known != idleAtMost+1 || total.Forgotten != more || len(c.records) != total.Known {
		t.Errorf("%+v, want %d known, %d forgotten", total, idleAtMost+1, more)
	}
	if ahead := c.changes(c.version); len(ahead.Gone)+len(ahead.Views) > 0 || ahead.All {
		t.Errorf("%+v for a reader who has seen everything", ahead)
	}
}

// TestKeysThatDoSomethingAreNotForgotten has more of them than the bound of idle ones, for longer than that.
func TestKeysThatDoSomethingAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRecorder(clock.RealClock{})
		for i := range 2 * idleAtMost {
			if i%2 == 0 {
				c.push(numbered(i), false)
			} else {
				c.wait(numbered(i), time.Hour)
			}
		}
		time.Sleep(2 * idleFor)
		c.changes(0)
		if total := c.total(); total.Known != 2*idleAtMost || total.Depth != idleAtMost || total.Waiting != idleAtMost || total.Forgotten != 0 {
			t.Errorf("%+v, want all known", total)
		}
	})
}

// TestReadsAreBounded follows more keys than one read returns, and one that missed more departures than are remembered.
func TestReadsAreBounded(t *testing.T) {
	const n = 3*changesAtMost + 5
	c := idled(n)
	if changes := c.changes(0); !changes.All || changes.More || len(changes.Views) != n {
		t.Errorf("a new reader gets %d of %d keys, all=%t", len(changes.Views), n, changes.All)
	}
	seen := 0
	since := uint64(1) // it knows none of the present states
	for reads := 1; ; reads++ {
		changes := c.changes(since)
		for _, view := range changes.Views {
			if view.Key != numbered(seen) {
				t.Fatalf("%s is view %d, want the oldest change first", view.Key, seen)
			}
			seen++
		}
		if changes.All || len(changes.Views) > changesAtMost {
			t.Errorf("read %d: all=%t, %d views", reads, changes.All, len(changes.Views))
		}
		since = changes.Next
		if !changes.More {
			break
		}
	}
	if seen != n {
		t.Errorf("%d of %d keys were seen", seen, n)
	}
	missed := since
	for i := range 2*goneAtMost + idleAtMost + 1 {
		pass(c, numbered(n+i))
	}
	if len(c.gone) > 2*goneAtMost {
		t.Errorf("%d departures are remembered, want %d at most", len(c.gone), 2*goneAtMost)
	}
	changes := c.changes(missed)
	if !changes.All || changes.More || len(changes.Gone) > 0 {
		t.Errorf("all=%t with %d gone for a reader that missed departures, want it to start anew", changes.All, len(changes.Gone))
	}
	if next := c.changes(changes.Next); next.All || len(next.Views) > 0 {
		t.Errorf("all=%t with %d keys right after, want it to be up to date", next.All, len(next.Views))
	}
	if changes := c.changes(c.version + 1); !changes.All {
		t.Error("a reader from another process is told of changes, want it to start anew")
	}
}
