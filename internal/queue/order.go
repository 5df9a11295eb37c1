package queue

import (
	"cmp"
	"container/heap"
	"time"
)

// fairEvery is how often a key is taken by its arrival alone. Keys of the most urgent classes may come without end; so
// one pop in fairEvery takes the key that was queued first, whatever its rank. A key with n keys queued before it is
// therefore taken within fairEvery*(n+1) pops, and urgent keys lose an eighth of the workers' pops at most.
const fairEvery = 8

// A Class is how urgent a key is. A higher one goes first.
type Class uint8

// The classes (DESIGN.md section 7).
const (
	Rest      Class = iota // nothing behind the key is known to go
	Pending                // what is behind it may go, which can still be undone
	Committed              // what is behind it goes
)

func (c Class) String() string {
	switch c {
	case Committed:
		return "Committed"
	case Pending:
		return "Pending"
	}
	return "Rest"
}

// A Rank is a key's place in the order: the class, then within Committed the next possible kill, then the arrival.
type Rank struct {
	Class Class
	// Kill is when a pod behind a Committed key may be killed next. Zero means that nothing is known, so that it may
	// happen now: the moment at which the key came to be queued or got the rank. Other classes have no kill.
	Kill time.Time
}

// order has the queued records: the heap by rank, and the list by arrival. It is not safe for concurrent use; no record is
// in it twice.
type order struct {
	heap     byRank
	arrivals list
	arrived  uint64 // numbers the arrivals
	pops     uint64
}

func newOrder() order { return order{arrivals: list{link: byArrival}} }

// push adds a record that is not queued.
func (o *order) push(r *record, now time.Time) {
	o.arrived++
	r.arrival = o.arrived
	r.kill = killOf(r.rank, now)
	o.arrivals.append(r)
	heap.Push(&o.heap, r)
}

// ranked puts a record in its new place after its rank changed. One that is not queued has none.
func (o *order) ranked(r *record, now time.Time) {
	if r.queued() {
		r.kill = killOf(r.rank, now)
		heap.Fix(&o.heap, r.index)
	}
}

// pop takes the record that is next. There must be one.
func (o *order) pop() *record {
	o.pops++
	next := o.heap[0]
	if o.pops%fairEvery == 0 {
		next = o.arrivals.first
	}
	heap.Remove(&o.heap, next.index)
	o.arrivals.remove(next)
	return next
}

// killOf is the time that the order compares, in microseconds since 1970, which hold every year that a Kubernetes object
// can name. Nanoseconds would overflow.
func killOf(rank Rank, now time.Time) int64 {
	switch {
	case rank.Class != Committed:
		return 0
	case rank.Kill.IsZero():
		return now.UnixMicro()
	}
	return rank.Kill.UnixMicro()
}

// byRank is the heap. Its first record is the next one by rank.
type byRank []*record

func (h byRank) Len() int { return len(h) }

func (h byRank) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(b.rank.Class, a.rank.Class), cmp.Compare(a.kill, b.kill), cmp.Compare(a.arrival, b.arrival)) < 0
}

func (h byRank) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *byRank) Push(x any) {
	r := x.(*record)
	r.index = len(*h)
	*h = append(*h, r)
}

// Pop is for package heap.
func (h *byRank) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.index = notQueued
	return r
}
