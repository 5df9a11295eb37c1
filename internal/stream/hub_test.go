package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// at is a clock that tests move by hand.
type at struct{ now time.Time }

func (a *at) Now() time.Time { return a.now }

func (a *at) pass(d time.Duration) { a.now = a.now.Add(d) }

var begin = time.Date(2026, 12, 1, 19, 0, 0, 0, time.UTC)

func newTestHub(t *testing.T) (*Hub, *at) {
	t.Helper()
	clock := &at{begin}
	return NewHub(Server{Boot: "b", Identity: "pod_1", Program: "v1", Started: begin}, clock.Now), clock
}

func mustAttach(t *testing.T, h *Hub) *reader {
	t.Helper()
	r, err := h.attach()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.detach(r) })
	return r
}

func lostPod(uid string) *Pod {
	return &Pod{UID: uid, Namespace: "d", Name: "p" + uid, Node: "n", Verdict: "Lost", Reason: "NoController"}
}

// A reader gets a snapshot, then what changed, merged, then heartbeats; and nothing where nothing changed.
func TestReaderGetsWhatItLacks(t *testing.T) {
	h, clock := newTestHub(t)
	h.Put(Content{Going: []*GoingNode{{Name: "n", State: "Pending"}}, Pods: []*Pod{lostPod("1"), lostPod("2")}})
	h.Decide(&Decision{What: "mark", Object: "d/p1"})
	r := mustAttach(t, h)

	first := r.next(clock.now)
	if first.Kind != Snapshot || first.Sequence != 1 || first.Server.Boot != "b" || first.Server.Version != Version ||
		len(first.Going) != 1 || len(first.Pods) != 2 || len(first.Decisions) != 1 || first.Decisions[0].Sequence != 1 {
		t.Fatalf("snapshot: %+v", first)
	}
	if record := r.next(clock.now); record != nil {
		t.Fatalf("nothing changed, and it says %+v", record)
	}
	h.Put(Content{Going: []*GoingNode{{Name: "n", State: "Pending"}}}) // the same again
	if record := r.next(clock.now); record != nil {
		t.Fatalf("nothing changed, and it says %+v", record)
	}
	h.Put(Content{Going: []*GoingNode{{Name: "n", State: "Committed"}}})
	h.Put(Content{Going: []*GoingNode{{Name: "n", State: "Committed", Marked: 1}}, Gone: &Gone{Pods: []string{"2", "never"}}})
	h.Put(Content{Pods: []*Pod{lostPod("3")}, Gone: &Gone{Pods: []string{"1"}}})
	h.Put(Content{Pods: []*Pod{lostPod("1")}}) // gone and back
	update := r.next(clock.now)
	if update.Kind != Update || update.Sequence != 2 || len(update.Going) != 1 || update.Going[0].Marked != 1 ||
		len(update.Pods) != 2 || !slices.Equal(update.Gone.Pods, []string{"2"}) {
		t.Fatalf("update: %+v, gone %+v", update, update.Gone)
	}
	clock.pass(heartbeatEvery - 1)
	if record := r.next(clock.now); record != nil {
		t.Fatalf("too early: %+v", record)
	}
	clock.pass(1)
	if record := r.next(clock.now); record == nil || record.Kind != Heartbeat || record.Sequence != 3 {
		t.Fatalf("heartbeat: %+v", record)
	}
}

// What is urgent wakes readers: a node that goes, by state, and a pod that is lost now.
func TestUrgent(t *testing.T) {
	h, _ := newTestHub(t)
	r := mustAttach(t, h)
	for _, step := range []struct {
		what   string
		put    Content
		urgent bool
	}{
		{"a going node", Content{Going: []*GoingNode{{Name: "n", State: "Pending"}}}, true},
		{"its counts", Content{Going: []*GoingNode{{Name: "n", State: "Pending", Pods: 3}}}, false},
		{"its state", Content{Going: []*GoingNode{{Name: "n", State: "Committed"}}}, true},
		{"a pod that comes back", Content{Pods: []*Pod{{UID: "1", Verdict: "Returns"}}}, false},
		{"and is lost after all", Content{Pods: []*Pod{{UID: "1", Verdict: "Lost"}}}, true},
		{"and is marked", Content{Pods: []*Pod{{UID: "1", Verdict: "Lost", Marked: true}}}, false},
		{"a coming node", Content{Coming: []*ComingNode{{ID: "c"}}}, false},
		{"a key", Content{Keys: []*Key{{ID: "k"}}}, false},
	} {
		h.Put(step.put)
		select {
		case <-r.urgent:
			if !step.urgent {
				t.Errorf("%s: urgent", step.what)
			}
		default:
			if step.urgent {
				t.Errorf("%s: not urgent", step.what)
			}
		}
	}
}

// A table is bounded; what cannot come back pushes out what can; what has no room is counted.
func TestTablesAreBounded(t *testing.T) {
	h, clock := newTestHub(t)
	h.pods.limit = limit{rows: 3, bytes: 1 << 20}
	put := func(uid, verdict string) {
		h.Put(Content{Pods: []*Pod{{UID: uid, Verdict: verdict}}})
	}
	r := mustAttach(t, h)
	r.next(clock.now)
	for i := range 4 {
		put(fmt.Sprint("r", i), "Returns")
	}
	if update := r.next(clock.now); len(update.Pods) != 3 || update.Left["pods"] != 1 {
		t.Fatalf("%d rows, left out %v", len(update.Pods), update.Left)
	}
	for i := range 4 {
		put(fmt.Sprint("l", i), "Lost")
	}
	update := r.next(clock.now)
	if len(update.Pods) != 3 || len(update.Gone.Pods) != 3 || update.Left["pods"] != 5 {
		t.Fatalf("%d rows, gone %v, left out %v", len(update.Pods), update.Gone, update.Left)
	}
	for _, pod := range update.Pods {
		if pod.Verdict != "Lost" {
			t.Errorf("%s has the place of one that is lost", pod.UID)
		}
	}
	gone := &Gone{}
	for i := range 4 {
		gone.Pods = append(gone.Pods, fmt.Sprint("r", i), fmt.Sprint("l", i))
	}
	h.Put(Content{Gone: gone})
	if update := r.next(clock.now); update.Left["pods"] != 0 || len(h.pods.rows)+h.pods.common.Len()+h.pods.bytes != 0 {
		t.Errorf("left out %v, still there %d rows, %d common, %d bytes", update.Left, len(h.pods.rows), h.pods.common.Len(), h.pods.bytes)
	}
}

// Texts are bounded too: a table has room for so many bytes.
func TestBytesAreBounded(t *testing.T) {
	h, clock := newTestHub(t)
	h.pods.limit = limit{rows: 1000, bytes: 10_000}
	for i := range 20 {
		h.Put(Content{Pods: []*Pod{{UID: fmt.Sprint(i), Verdict: "Lost", Message: strings.Repeat("\x1b[2J", 1000)}}})
	}
	snapshot := mustAttach(t, h).next(clock.now)
	if n := len(snapshot.Pods); n != 8 || snapshot.Left["pods"] != 12 || h.pods.bytes > 10_000 {
		t.Errorf("%d rows of %d bytes, left out %v", n, h.pods.bytes, snapshot.Left)
	}
	for _, pod := range snapshot.Pods {
		if len(pod.Message) > maxText || strings.ContainsRune(pod.Message, '\x1b') {
			t.Fatalf("a message of %d bytes: %q", len(pod.Message), pod.Message)
		}
	}
	// A row that grows beyond the room is left out, and readers hear that it is gone.
	r := mustAttach(t, h)
	r.next(clock.now)
	h.Put(Content{Pods: []*Pod{{UID: snapshot.Pods[0].UID, Verdict: "Lost", Message: strings.Repeat("m", maxText), Reason: strings.Repeat("m", maxText)}}})
	if update := r.next(clock.now); len(update.Pods) != 0 || len(update.Gone.Pods) != 1 || update.Left["pods"] != 13 {
		t.Errorf("%d rows, gone %v, left out %v", len(update.Pods), update.Gone, update.Left)
	}
}

// A reader that missed more than is kept is told so, and never gets a gap: of rows that are gone, and of decisions.
func TestFallingBehind(t *testing.T) {
	for name, flood := range map[string]func(h *Hub, i int){
		"rows that are gone": func(h *Hub, i int) {
			h.Put(Content{Pods: []*Pod{lostPod(fmt.Sprint(i))}})
			h.Put(Content{Gone: &Gone{Pods: []string{fmt.Sprint(i)}}})
		},
		"decisions": func(h *Hub, _ int) { h.Decide(&Decision{What: "mark"}) },
	} {
		t.Run(name, func(t *testing.T) {
			h, clock := newTestHub(t)
			slow, quick := mustAttach(t, h), mustAttach(t, h)
			slow.next(clock.now)
			quick.next(clock.now)
			var decided uint64
			for i := range 3 * gravesAtMost {
				flood(h, i)
				if i%100 != 0 {
					continue
				}
				record := quick.next(clock.now)
				if record.Kind != Update {
					t.Fatalf("who reads got %s", record.Kind)
				}
				for _, d := range record.Decisions {
					if decided++; d.Sequence != decided {
						t.Fatalf("decision %d came where %d is next", d.Sequence, decided)
					}
				}
			}
			if record := slow.next(clock.now); record.Kind != FellBehind || record.Message == "" {
				t.Errorf("who did not read got %s %q", record.Kind, record.Message)
			}
		})
	}
}

// With nobody reading nothing is remembered of what is gone, and the sources are not asked.
func TestNobodyReads(t *testing.T) {
	h, clock := newTestHub(t)
	asked := 0
	h.Poll(func() Content { asked++; return Content{Queue: &Totals{Depth: asked}} })
	for i := range 100 {
		h.Put(Content{Pods: []*Pod{lostPod(fmt.Sprint(i))}})
		h.Put(Content{Gone: &Gone{Pods: []string{fmt.Sprint(i)}}})
	}
	if h.pods.graves.Len() != 0 || asked != 0 {
		t.Errorf("%d rows remembered, asked %d times", h.pods.graves.Len(), asked)
	}
	r := mustAttach(t, h)
	if snapshot := r.next(clock.now); asked != 1 || snapshot.Queue.Depth != 1 {
		t.Errorf("asked %d times, queue %+v", asked, snapshot.Queue)
	}
	mustAttach(t, h) // at the same moment
	if asked != 1 {
		t.Errorf("asked %d times for two at once", asked)
	}
}

// A hub has places for so many; a nil hub takes everything.
func TestPlaces(t *testing.T) {
	h, _ := newTestHub(t)
	for range MaxReaders {
		mustAttach(t, h)
	}
	if _, err := h.attach(); err != errFull {
		t.Errorf("one more: %v", err)
	}
	h.Close()
	h.Close()
	if _, err := h.attach(); err != errClosed {
		t.Errorf("after its end: %v", err)
	}
	var none *Hub
	none.Put(Content{Keys: []*Key{{}}})
	none.Decide(&Decision{})
	none.Poll(nil)
	none.Close()
}

// A stream of Puts costs little, whoever reads: the order of a microsecond.
func BenchmarkPut(b *testing.B) {
	for _, readers := range []int{0, 4} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			h := NewHub(Server{}, time.Now)
			for range readers {
				r, err := h.attach()
				if err != nil {
					b.Fatal(err)
				}
				r.next(begin)
			}
			b.ReportAllocs()
			for i := range b.N {
				h.Put(Content{Pods: []*Pod{{UID: ids[i%len(ids)], Namespace: "default", Name: "web", Node: "n", Verdict: "Returns", Marked: i%2 == 0, Message: ids[i/3%len(ids)]}}})
			}
		})
	}
}

var ids = func() (list [1000]string) {
	for i := range list {
		list[i] = fmt.Sprintf("0c6d2b7e-%08d", i)
	}
	return list
}()
