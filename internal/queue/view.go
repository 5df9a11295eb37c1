package queue

import "time"

// State is what a key does now.
type State uint8

// The states. A key that runs or is queued may have a time to be looked at again besides: see KeyView.Until.
const (
	Idle       State = iota // nothing is to be done
	Queued                  // it waits for a worker
	Running                 // a worker has it
	BackingOff              // it failed the last time and is tried again at Until
	Waiting                 // it was asked for at a later time, Until
	states                  // how many there are
)

func (s State) String() string {
	switch s {
	case Queued:
		return "queued"
	case Running:
		return "running"
	case BackingOff:
		return "backing-off"
	case Waiting:
		return "waiting"
	}
	return "idle"
}

// A KeyView is one key at one moment. Counts are since the key was first heard of, or since its history was dropped.
type KeyView struct {
	Key   Key
	State State
	Since time.Time // of the state
	// Until is when the key is looked at again by the passing of time, in any state; zero for never. The first of several
	// such times stands.
	Until time.Time
	Rank  Rank
	// Again: the key runs, and was asked for meanwhile, so that it is queued when it is done.
	Again bool

	// Of all that was asked for, Added led to a run, started or to come. The others fell together with one of those:
	// DedupedQueued while the key was queued, DedupedRunning while it ran and was asked for again already.
	Added, DedupedQueued, DedupedRunning int64
	Started                              int64
	Failed                               int64

	Failures     int           // one after the other, since the last success
	LastError    string        // of the last failure, which may be long ago; cut at 256 bytes
	LastDuration time.Duration // of the last run that ended; zero before that
}

// Totals are the queue's as a whole. Counts are since New.
type Totals struct {
	Depth, Running, BackingOff, Waiting, Known int // keys by state, and of any

	Oldest time.Time // since when the key is queued that was queued first; zero with an empty queue

	Added, Deduped, Started, Done, Failed int64

	Workers int
	// Forgotten counts keys whose history was dropped: see Changes.
	Forgotten int64
}

// Changes are what is new since an earlier look.
type Changes struct {
	// All: Views replace whatever the reader knows, and are whole. It is so the first time, and for a reader that was away for
	// too long.
	All bool
	// Views are the keys that changed, the longest ago first; without All, 512 at most.
	Views []KeyView
	// Gone are keys whose history was dropped, because they were idle for 10 minutes or because there were too many: more
	// than 4096 idle ones.
	Gone []Key
	// Next goes into the next call. More: there is more already, so that it may follow at once.
	Next uint64
	More bool
}
