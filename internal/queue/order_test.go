package queue

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// ranked is a record that was ranked and is not queued.
func ranked(name string, rank Rank) *record {
	return &record{key: Key{Kind: "k", Name: name}, rank: rank, index: notQueued}
}

func killedAt(after time.Duration) Rank { return Rank{Class: Committed, Kill: noon.Add(after)} }

func TestOrder(t *testing.T) {
	now := Rank{Class: Committed}
	pending := Rank{Class: Pending}
	tests := []struct {
		name  string
		ranks []Rank // pushed one second after the other, from noon on
		want  string
	}{
		{"by arrival", []Rank{{}, {}, {}}, "0 1 2"},
		{"by class", []Rank{{}, pending, now}, "2 1 0"},
		{"by kill", []Rank{killedAt(time.Hour), killedAt(time.Minute), killedAt(2 * time.Minute)}, "1 2 0"},
		{"no deadline counts as now", []Rank{killedAt(time.Minute), now, killedAt(-time.Minute)}, "2 1 0"},
		{"a deadline between two that have none", []Rank{now, {}, now, killedAt(1500 * time.Millisecond)}, "0 3 2 1"},
		{"equal kills by arrival", []Rank{killedAt(time.Hour), killedAt(time.Hour)}, "0 1"},
		{"a far deadline is before what may be undone", []Rank{pending, killedAt(24 * 365 * 80 * time.Hour)}, "1 0"},
		{"the year 9999", []Rank{{Class: Committed, Kill: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, killedAt(time.Hour)}, "1 0"},
		{"a kill of what is not committed is none", []Rank{pending, {Class: Pending, Kill: noon.Add(-time.Hour)}}, "0 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newOrder()
			for i, rank := range tt.ranks {
				o.push(ranked(fmt.Sprint(i), rank), noon.Add(time.Duration(i)*time.Second))
			}
			var got []string
			for range tt.ranks {
				got = append(got, o.pop().key.Name)
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("order %s, want %s", got, tt.want)
			}
		})
	}
}

// TestRankChangesWhileQueued has a node's deadline become known, and its disruption taken back, while keys wait.
func TestRankChangesWhileQueued(t *testing.T) {
	o := newOrder()
	a, b, c := ranked("a", Rank{}), ranked("b", killedAt(time.Hour)), ranked("c", Rank{Class: Committed})
	for _, r := range []*record{a, b, c} {
		o.push(r, noon)
	}
	a.rank = killedAt(-time.Minute)
	o.ranked(a, noon)
	c.rank = Rank{}
	o.ranked(c, noon)
	var got string
	for range 3 {
		got += o.pop().key.Name
	}
	if got != "abc" {
		t.Errorf("order %s, want abc", got)
	}
}

// TestNobodyStarves has ever more urgent keys come than are taken, and checks the bound that fairEvery states for each of
// those that are not urgent, and that urgent ones have the rest of the pops.
func TestNobodyStarves(t *testing.T) {
	o := newOrder()
	const resting = 20
	for i := range resting {
		o.push(ranked(fmt.Sprint("rest ", i), Rank{}), noon)
	}
	left, pops := resting, 0
	for left > 0 {
		for range 2 {
			o.push(ranked("urgent", Rank{Class: Committed}), noon)
		}
		pops++
		if r := o.pop(); r.rank.Class == Rest {
			ahead := resting - left
			if r.key.Name != fmt.Sprint("rest ", ahead) {
				t.Errorf("pop %d took %s, want the oldest", pops, r.key.Name)
			}
			if bound := fairEvery * (ahead + 1); pops > bound {
				t.Errorf("a key with %d before it waited for %d pops, want %d at most", ahead, pops, bound)
			}
			left--
		}
	}
	if pops < fairEvery*resting {
		t.Errorf("%d keys that can wait were taken within %d pops, though urgent ones were queued", resting, pops)
	}
}

// sorted is the reference of order: a slice in which the next one is looked for.
type sorted struct {
	queued []*record // by arrival
	pops   int
}

func (s *sorted) pop() *record {
	s.pops++
	next := 0
	if s.pops%fairEvery != 0 {
		for i, r := range s.queued {
			if before(r, s.queued[next]) {
				next = i
			}
		}
	}
	r := s.queued[next]
	s.queued = slices.Delete(s.queued, next, next+1)
	return r
}

func before(a, b *record) bool {
	return cmp.Or(-cmp.Compare(a.rank.Class, b.rank.Class), cmp.Compare(a.kill, b.kill)) < 0
}

// FuzzOrder does what the bytes say to an order and to its reference. Each byte is a push, a pop or a new rank.
func FuzzOrder(f *testing.F) {
	f.Add([]byte{0, 4, 8, 1, 1, 2, 1, 1})
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		steps := make([]byte, 400)
		for i := range steps {
			steps[i] = byte(random.Uint32())
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		o, reference := newOrder(), sorted{}
		for i, step := range steps {
			now := noon.Add(time.Duration(i) * time.Second)
			rank := Rank{Class: Class(step >> 2 % 3)}
			if step&0x80 != 0 && rank.Class == Committed {
				rank.Kill = noon.Add(time.Duration(step>>4) * time.Minute)
			}
			switch n := len(reference.queued); {
			case step&3 == 1 && n > 0:
				if got, want := o.pop(), reference.pop(); got != want {
					t.Fatalf("step %d: %v is next, want %v", i, got.key, want.key)
				}
			case step&3 == 2 && n > 0:
				r := reference.queued[int(step>>2)%n]
				r.rank = rank
				o.ranked(r, now)
			default:
				r := ranked(fmt.Sprint(i), rank)
				o.push(r, now)
				reference.queued = append(reference.queued, r)
			}
			mustBeLinked(t, &o, reference.queued)
		}
		for len(reference.queued) > 0 {
			if got, want := o.pop(), reference.pop(); got != want {
				t.Fatalf("at the end: %v is next, want %v", got.key, want.key)
			}
		}
	})
}

// mustBeLinked checks the arrivals in both directions, and that each record knows its place in the heap.
func mustBeLinked(t *testing.T, o *order, want []*record) {
	t.Helper()
	var forward, backward []*record
	for r := o.arrivals.first; r != nil; r = r.links[byArrival].after {
		forward = append(forward, r)
	}
	for r := o.arrivals.last; r != nil; r = r.links[byArrival].before {
		backward = append(backward, r)
	}
	slices.Reverse(backward)
	if !slices.Equal(forward, want) || !slices.Equal(backward, want) {
		t.Fatalf("the arrivals are %d forwards and %d backwards, want %d in their order", len(forward), len(backward), len(want))
	}
	for i, r := range o.heap {
		if r.index != i || len(o.heap) != len(want) {
			t.Fatalf("place %d of %d has the record of place %d, want %d places", i, len(o.heap), r.index, len(want))
		}
	}
}
