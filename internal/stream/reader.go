package stream

import (
	"maps"
	"slices"
	"time"
)

const (
	// updateEvery is the least time between two updates of a reader, urgent ones aside.
	updateEvery = 100 * time.Millisecond
	// urgentEvery is the least time between two urgent updates: in a storm, what is urgent is merged too.
	urgentEvery = 20 * time.Millisecond
	// heartbeatEvery is the longest silence. Clients give up after three (see silences).
	heartbeatEvery = 10 * time.Second
)

// A reader is one who reads a hub: what it has, and so what it lacks. It has no goroutine and no buffer: next is called
// when it is time to write. Only one goroutine uses it; the hub's lock guards what it reads of the hub.
type reader struct {
	hub    *Hub
	urgent chan struct{} // something should be written at once

	sequence uint64    // of the last record
	version  uint64    // of the hub, as of the last record
	decided  uint64    // sequence of the last decision that was sent
	sent     time.Time // when the last record was made
}

// next returns what to write now, nil for nothing. The first is a snapshot; a fell-behind record is the last.
func (r *reader) next(now time.Time) *Record {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	switch {
	case r.sequence == 0:
		return r.snapshot(now)
	case r.hub.version > r.version:
		content, ok := r.changes()
		if !ok {
			return r.record(FellBehind, now, Content{}, "more went by than is kept")
		}
		r.version = r.hub.version
		if !empty(&content) {
			return r.record(Update, now, content, "")
		}
	}
	if now.Sub(r.sent) >= heartbeatEvery {
		return r.record(Heartbeat, now, Content{}, "")
	}
	return nil
}

func (r *reader) record(kind RecordKind, now time.Time, c Content, message string) *Record {
	r.sequence++
	r.sent = now
	return &Record{Kind: kind, Sequence: r.sequence, Time: now, Content: c, Message: message}
}

// snapshot has everything. The hub's lock is held, as for changes.
func (r *reader) snapshot(now time.Time) *Record {
	h := r.hub
	r.version, r.decided = h.version, h.decided
	record := r.record(Snapshot, now, Content{
		Queue: h.queue, Keys: h.keys.all(), Going: h.going.all(), Pods: h.pods.all(), Coming: h.coming.all(), Standing: h.standing.all(),
		Decisions: slices.Clone(h.recent()), Left: h.leftMap(),
	}, "")
	maps.DeleteFunc(record.Left, func(_ string, n int) bool { return n == 0 })
	server := h.server
	record.Server = &server
	return record
}

// changes has what the reader lacks; false where some of that is forgotten.
func (r *reader) changes() (c Content, ok bool) {
	h := r.hub
	var gone Gone
	var fine [5]bool
	c.Keys, gone.Keys, fine[0] = h.keys.since(r.version)
	c.Going, gone.Going, fine[1] = h.going.since(r.version)
	c.Pods, gone.Pods, fine[2] = h.pods.since(r.version)
	c.Coming, gone.Coming, fine[3] = h.coming.since(r.version)
	c.Standing, gone.Standing, fine[4] = h.standing.since(r.version)
	missed := h.decided - r.decided
	if slices.Contains(fine[:], false) || missed > uint64(len(h.decisions)) {
		return Content{}, false
	}
	c.Decisions = slices.Clone(h.decisions[uint64(len(h.decisions))-missed:])
	r.decided = h.decided
	if h.queueAt > r.version {
		c.Queue = h.queue
	}
	if h.leftAt > r.version {
		c.Left = h.leftMap()
	}
	if len(gone.Keys)+len(gone.Going)+len(gone.Pods)+len(gone.Coming)+len(gone.Standing) > 0 {
		c.Gone = &gone
	}
	return c, true
}

// empty tells whether there is nothing to say: what changed has changed back, or is left out.
func empty(c *Content) bool {
	return c.Queue == nil && c.Gone == nil && len(c.Left)+len(c.Keys)+len(c.Going)+len(c.Pods)+len(c.Coming)+len(c.Standing)+len(c.Decisions) == 0
}
