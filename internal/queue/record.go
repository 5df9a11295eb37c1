package queue

import "time"

// notQueued is the index in the heap of a record that is not in it.
const notQueued = -1

// A record is what is known of one key. The recorder's lock guards it.
type record struct {
	key   Key
	state State
	since time.Time // of state

	// What the order goes by.
	rank    Rank
	kill    int64  // see killOf
	arrival uint64 // the order's number
	index   int    // in the heap

	running bool
	again   bool      // asked for while it runs
	begun   time.Time // the run that goes on
	due     time.Time // when the waiting loop adds it; zero for never

	added, dedupedQueued, dedupedRunning, started, failed int64

	failures     int // one after the other
	lastError    string
	lastDuration time.Duration

	version uint64 // of its last change
	links   [lists]links
}

func (r *record) queued() bool { return r.index != notQueued }

// shown is the state that the rest of the record makes.
func (r *record) shown() State {
	switch {
	case r.running:
		return Running
	case r.queued():
		return Queued
	case r.due.IsZero():
		return Idle
	case r.failures > 0:
		return BackingOff
	}
	return Waiting
}

func (r *record) view() KeyView {
	return KeyView{
		Key: r.key, State: r.state, Since: r.since, Until: r.due, Rank: r.rank, Again: r.again,
		Added: r.added, DedupedQueued: r.dedupedQueued, DedupedRunning: r.dedupedRunning, Started: r.started, Failed: r.failed,
		Failures: r.failures, LastError: r.lastError, LastDuration: r.lastDuration,
	}
}

// links tie a record to its neighbours in one list.
type links struct{ before, after *record }

// The lists that records are in.
const (
	byArrival = iota // while it is queued
	byRest           // while it is idle
	byChange         // always
	lists            // how many there are
)

// list is a list of records, tied together by the records themselves, so that it never allocates.
type list struct {
	link        int // which of a record's links it uses
	first, last *record
}

func (l *list) append(r *record) {
	r.links[l.link] = links{before: l.last}
	if l.last == nil {
		l.first = r
	} else {
		l.last.links[l.link].after = r
	}
	l.last = r
}

// remove takes out a record that is in the list.
func (l *list) remove(r *record) {
	tie := r.links[l.link]
	if tie.before == nil {
		l.first = tie.after
	} else {
		tie.before.links[l.link].after = tie.after
	}
	if tie.after == nil {
		l.last = tie.before
	} else {
		tie.after.links[l.link].before = tie.before
	}
	r.links[l.link] = links{}
}
