package queue

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// The bounds of what is remembered.
const (
	// idleFor and idleAtMost bound the history of keys that do nothing: long enough to see what just happened, and some
	// megabytes at most. Keys that do something are as many as the queue has anyway.
	idleFor    = 10 * time.Minute
	idleAtMost = 4096
	// forgottenAtOnce bounds how long the lock is held for it. Keys come to rest one at a time, so it keeps up.
	forgottenAtOnce = 64
	// goneAtMost bounds what is remembered of forgotten keys for readers. One that missed more starts anew.
	goneAtMost = 4096
	// changesAtMost bounds one read, in rows, so that it holds the lock for some tens of microseconds (BenchmarkChanges).
	changesAtMost  = 512
	lastErrorBytes = 256
)

// recorder knows what became of each key, from the hooks of the queue's layers, and has the order of those that are
// queued. Its lock is the innermost: nothing else is called under it. Safe for concurrent use.
type recorder struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	records map[Key]*record
	queued  order
	idle    list // by the time at which they came to rest
	changed list // all records, by their last change

	version uint64 // counts changes
	totals  Totals // its counts; what readers get has the states too
	counts  [states]int

	gone     []departure // the oldest first
	goneLost uint64      // version of the newest one that gone no longer has
}

type departure struct {
	key     Key
	version uint64
}

func newRecorder(clock clock.PassiveClock) *recorder {
	return &recorder{
		clock: clock, records: map[Key]*record{}, queued: newOrder(),
		idle: list{link: byRest}, changed: list{link: byChange},
	}
}

// of is the key's record, which is made where there is none. The lock is held.
func (c *recorder) of(key Key, now time.Time) *record {
	r := c.records[key]
	if r == nil {
		r = &record{key: key, index: notQueued, since: now}
		c.records[key] = r
		c.idle.append(r)
		c.changed.append(r)
		c.counts[Idle]++
	}
	return r
}

// settle notes that a record changed. Call it once per change, as the last thing. The lock is held.
func (c *recorder) settle(r *record, now time.Time) {
	c.version++
	r.version = c.version
	c.changed.remove(r)
	c.changed.append(r)
	was, is := r.state, r.shown()
	if was == is {
		return
	}
	c.counts[was]--
	c.counts[is]++
	r.state, r.since = is, now
	if was == Idle {
		c.idle.remove(r)
	}
	if is == Idle {
		c.idle.append(r)
		c.forget(now)
	}
}

// forget drops the history of keys that are idle for too long, or too many. The lock is held.
func (c *recorder) forget(now time.Time) {
	for range forgottenAtOnce {
		r := c.idle.first
		if r == nil || c.counts[Idle] <= idleAtMost && now.Sub(r.since) <= idleFor {
			return
		}
		c.idle.remove(r)
		c.changed.remove(r)
		delete(c.records, r.key)
		c.counts[Idle]--
		c.totals.Forgotten++
		c.version++
		if len(c.gone) == 2*goneAtMost { // in halves, so that each costs little
			c.goneLost = c.gone[goneAtMost-1].version
			c.gone = append(c.gone[:0], c.gone[goneAtMost:]...)
		}
		c.gone = append(c.gone, departure{r.key, c.version})
	}
}

// rank gives the key its rank, at once where it is queued. Of a key that is not known nothing is kept.
func (c *recorder) rank(key Key, rank Rank) {
	if rank.Class != Committed {
		rank.Kill = time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[key]
	if r == nil || r.rank.Class == rank.Class && r.rank.Kill.Equal(rank.Kill) {
		return
	}
	now := c.clock.Now()
	r.rank = rank
	c.queued.ranked(r, now)
	c.settle(r, now)
}

// push notes that the key is queued: anew, or at the end of a run during which it was asked for.
func (c *recorder) push(key Key, timer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	r := c.of(key, now)
	if r.running {
		c.end(r, now)
	} else {
		c.add(r, timer)
	}
	c.queued.push(r, now)
	c.settle(r, now)
}

// touch notes that a key was asked for that is queued already.
func (c *recorder) touch(key Key, timer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	r := c.of(key, now)
	r.fired(timer)
	r.dedupedQueued++
	c.totals.Deduped++
	c.settle(r, now)
}

// during notes that a key was asked for while it runs.
func (c *recorder) during(key Key, timer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	r := c.of(key, now)
	if r.again {
		r.fired(timer)
		r.dedupedRunning++
		c.totals.Deduped++
	} else {
		r.again = true
		c.add(r, timer)
	}
	c.settle(r, now)
}

// add counts what leads to a run of its own. The lock is held.
func (c *recorder) add(r *record, timer bool) {
	r.fired(timer)
	r.added++
	c.totals.Added++
}

// fired notes that the time has come that the record waited for.
func (r *record) fired(timer bool) {
	if timer {
		r.due = time.Time{}
	}
}

// pop takes the key that is next. There must be one.
func (c *recorder) pop() Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	r := c.queued.pop()
	r.running, r.begun = true, now
	r.started++
	c.totals.Started++
	c.settle(r, now)
	return r.key
}

// done notes that a run has ended that nothing follows. One that is followed by another is noted by push.
func (c *recorder) done(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	r := c.of(key, now)
	c.end(r, now)
	c.settle(r, now)
}

// end closes a run. The lock is held.
func (c *recorder) end(r *record, now time.Time) {
	r.running, r.again = false, false
	r.lastDuration = now.Sub(r.begun)
	c.totals.Done++
}

// wait notes that the key is to be looked at after some time. False means that it will be before that anyway.
func (c *recorder) wait(key Key, after time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	due := now.Add(after)
	r := c.of(key, now)
	if !r.due.IsZero() && !due.Before(r.due) {
		return false
	}
	r.due = due
	c.settle(r, now)
	return true
}

// failed notes how often the key has failed, one after the other.
func (c *recorder) failed(key Key, failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	r := c.of(key, now)
	r.failures = failures
	r.failed++
	c.totals.Failed++
	c.settle(r, now)
}

// explain notes what a failure was.
func (c *recorder) explain(key Key, err error) {
	text := err.Error()
	if len(text) > lastErrorBytes {
		text = text[:lastErrorBytes]
	}
	text = strings.ToValidUTF8(text, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	r := c.of(key, now)
	r.lastError = text
	c.settle(r, now)
}

// succeeded notes that the key's failures are over.
func (c *recorder) succeeded(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[key]
	if r == nil || r.failures == 0 {
		return
	}
	r.failures = 0
	c.settle(r, c.clock.Now())
}

func (c *recorder) working(workers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.totals.Workers = workers
}

func (c *recorder) total() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.totals
	t.Depth, t.Running, t.BackingOff, t.Waiting = c.counts[Queued], c.counts[Running], c.counts[BackingOff], c.counts[Waiting]
	t.Known = len(c.records)
	if first := c.queued.arrivals.first; first != nil {
		t.Oldest = first.since
	}
	return t
}

func (c *recorder) changes(since uint64) Changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(c.clock.Now())
	result := Changes{All: since == 0 || since < c.goneLost || since > c.version, Next: c.version}
	if result.All {
		since = 0
	}
	var oldest *record
	count := 0
	for r := c.changed.last; r != nil && r.version > since; r = r.links[byChange].before {
		oldest = r
		count++
	}
	// Who starts anew gets all at once. In parts, it would never come to an end: what the first part has changed long ago,
	// before departures that are forgotten, so that the next read would start anew again.
	most := changesAtMost
	if result.All {
		most = count
	}
	result.Views = make([]KeyView, 0, min(count, most))
	for r := oldest; r != nil; r = r.links[byChange].after {
		if len(result.Views) == most {
			result.More, result.Next = true, r.links[byChange].before.version
			break
		}
		result.Views = append(result.Views, r.view())
	}
	if result.All {
		return result
	}
	first, _ := slices.BinarySearchFunc(c.gone, since+1, func(d departure, version uint64) int { return cmp.Compare(d.version, version) })
	for _, d := range c.gone[first:] {
		if d.version > result.Next {
			break
		}
		if c.records[d.key] == nil { // it is not back
			result.Gone = append(result.Gone, d.key)
		}
	}
	return result
}
