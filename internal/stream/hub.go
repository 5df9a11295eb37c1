package stream

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// The bounds of what a hub keeps, and so of a snapshot: about 8 MiB of text, and half as much again of JSON around it.
var (
	keysLimit     = limit{4096, 1 << 20}
	goingLimit    = limit{1024, 1 << 20}
	podsLimit     = limit{8192, 4 << 20}
	comingLimit   = limit{1024, 1 << 20}
	standingLimit = limit{512, 1 << 20}
)

// decisionsAtMost is how many decisions a hub keeps: those of the last minutes on a bad day. A snapshot has them all.
const decisionsAtMost = 1000

// MaxReaders bounds the readers of one hub. Each costs at most one goroutine and what is written to it at the moment.
const MaxReaders = 8

// A Source tells what changed since it was last asked. It is asked while somebody reads and not otherwise, by one
// goroutine at a time.
type Source func() Content

// A Hub has the present state of what is shown, and merges it for each reader. A nil Hub takes everything and shows it to
// nobody. Safe for concurrent use.
//
// Writers never wait for readers: Put costs a lock and the rows' place in their tables, whoever reads. What a reader lacks
// is found when it is the reader's turn, and encoded on the reader's goroutine.
type Hub struct {
	clock  func() time.Time
	server Server

	polling sync.Mutex // held while the sources are asked; before mu
	sources []Source   // guarded by polling
	polled  time.Time  // guarded by polling

	mu        sync.Mutex // guards all below
	version   uint64     // counts Puts and Decides
	queue     *Totals
	queueAt   uint64 // version of queue
	keys      *table[*Key]
	going     *table[*GoingNode]
	pods      *table[*Pod]
	coming    *table[*ComingNode]
	standing  *table[*Standing]
	decisions []*Decision // by sequence, without gaps, the latest last
	decided   uint64      // sequence of the latest
	readers   map[*reader]struct{}
	leftAt    uint64 // version of the last change of what is left out
	left      [5]int // as of leftAt, by table
	closed    bool
	ended     chan struct{} // closed with closed
}

// NewHub makes a hub that speaks for the server.
func NewHub(server Server, clock func() time.Time) *Hub {
	server.Version, server.HeartbeatSeconds = Version, int(heartbeatEvery/time.Second)
	tidy(server.texts())
	return &Hub{
		clock: clock, server: server,
		keys:     newTable[*Key]("keys", keysLimit),
		going:    newTable[*GoingNode]("going", goingLimit),
		pods:     newTable[*Pod]("pods", podsLimit),
		coming:   newTable[*ComingNode]("coming", comingLimit),
		standing: newTable[*Standing]("standing", standingLimit),
		readers:  map[*reader]struct{}{}, ended: make(chan struct{}),
	}
}

// Poll has the source asked while somebody reads. Call it before the hub is served.
func (h *Hub) Poll(s Source) {
	if h != nil {
		h.polling.Lock()
		h.sources = append(h.sources, s)
		h.polling.Unlock()
	}
}

// Put takes out the rows whose identities are in Gone, and then makes the given rows current. They are the hub's from then
// on. Left and Decisions are not looked at: the hub has its own.
func (h *Hub) Put(c Content) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	h.drop(c.Gone)
	urgent := false
	if c.Queue != nil && (h.queue == nil || *h.queue != *c.Queue) {
		h.queue, h.queueAt = c.Queue, h.version
	}
	for _, row := range c.Keys {
		h.keys.put(row, h.version)
	}
	for _, row := range c.Going {
		before, had, _ := h.going.put(row, h.version)
		urgent = urgent || !had || before.State != row.State
	}
	for _, row := range c.Pods {
		before, had, _ := h.pods.put(row, h.version)
		urgent = urgent || row.Verdict == "Lost" && (!had || before.Verdict != row.Verdict)
	}
	for _, row := range c.Coming {
		h.coming.put(row, h.version)
	}
	for _, row := range c.Standing {
		h.standing.put(row, h.version)
	}
	h.countLeft()
	h.wake(urgent)
}

// drop takes rows out. The lock is held.
func (h *Hub) drop(gone *Gone) {
	if gone != nil {
		removeAll(h.keys, gone.Keys, h.version)
		removeAll(h.going, gone.Going, h.version)
		removeAll(h.pods, gone.Pods, h.version)
		removeAll(h.coming, gone.Coming, h.version)
		removeAll(h.standing, gone.Standing, h.version)
	}
	if len(h.readers) == 0 { // nobody has what is gone
		h.keys.clear(h.version)
		h.going.clear(h.version)
		h.pods.clear(h.version)
		h.coming.clear(h.version)
		h.standing.clear(h.version)
	}
}

func removeAll[R row](t *table[R], ids []string, version uint64) {
	for _, id := range ids {
		t.remove(id, version)
	}
}

// Decide appends to the log of decisions and gives the decision its sequence. It is the hub's from then on.
func (h *Hub) Decide(d *Decision) {
	if h == nil {
		return
	}
	d.tidy()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	h.decided++
	d.Sequence = h.decided
	if len(h.decisions) == 2*decisionsAtMost { // in halves, so that each costs little
		h.decisions = append(h.decisions[:0:0], h.decisions[decisionsAtMost:]...)
	}
	h.decisions = append(h.decisions, d)
}

// recent are the decisions that a snapshot has. The lock is held.
func (h *Hub) recent() []*Decision {
	return h.decisions[max(0, len(h.decisions)-decisionsAtMost):]
}

// wake has urgent changes sent at once. The lock is held.
func (h *Hub) wake(urgent bool) {
	if !urgent {
		return
	}
	for r := range h.readers {
		select {
		case r.urgent <- struct{}{}:
		default: // it was woken already
		}
	}
}

// tableNames are those of Left, in the order of Hub.left.
var tableNames = [5]string{"keys", "going", "pods", "coming", "standing"}

// countLeft notes how many rows have no room. The lock is held.
func (h *Hub) countLeft() {
	now := [5]int{len(h.keys.left), len(h.going.left), len(h.pods.left), len(h.coming.left), len(h.standing.left)}
	if now != h.left {
		h.left, h.leftAt = now, h.version
	}
}

// leftMap is left for a record, zeros included: they take back what was said before.
func (h *Hub) leftMap() map[string]int {
	counts := map[string]int{}
	for i, name := range tableNames {
		counts[name] = h.left[i]
	}
	return counts
}

// Close ends all streams: this process leads no more. Nothing may be attached after that.
func (h *Hub) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.ended)
	}
}

// What keeps a reader out.
var (
	errFull   = fmt.Errorf("all %d places for readers are taken: try again later", MaxReaders)
	errClosed = errors.New("the controller is ending")
)

// attach makes a reader. detach must be called for it.
func (h *Hub) attach() (*reader, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errClosed
	}
	if len(h.readers) >= MaxReaders {
		h.mu.Unlock()
		return nil, errFull
	}
	r := &reader{hub: h, urgent: make(chan struct{}, 1)}
	h.readers[r] = struct{}{}
	h.mu.Unlock()
	h.refresh()
	return r, nil
}

func (h *Hub) detach(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
}

// refresh asks the sources, unless that was just done for another reader.
func (h *Hub) refresh() {
	h.polling.Lock()
	defer h.polling.Unlock()
	now := h.clock()
	if now.Sub(h.polled) < updateEvery/2 {
		return
	}
	h.polled = now
	for _, source := range h.sources {
		h.Put(source())
	}
}
