package stream

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever happens in a hub, and however often the way to it breaks, a client comes to have what the hub has.
func TestClientHasWhatTheHubHas(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { liveOn(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func liveOn(t *testing.T, random *rand.Rand) {
	hub := NewHub(Server{Boot: "b"}, time.Now)
	hub.pods.limit, hub.standing.limit = limit{12, 1 << 20}, limit{6, 1 << 20} // so that rows are left out
	way := &way{conns: make(chan net.Conn)}
	server := &http.Server{Handler: &Handler{Hub: hub}}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = server.Serve(way) })
	defer server.Close()
	defer hub.Close()
	client := NewClient(way, ClientOptions{Jitter: random.Float64})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running.Go(func() { _ = client.Run(ctx) }) // its error is a Tap's, and there is none
	var state *State
	for range 30 {
		for range random.IntN(20) {
			hub.Put(anything(random))
			hub.Decide(&Decision{What: "mark", Object: fmt.Sprint(random.IntN(9))})
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		}
		if random.IntN(4) == 0 {
			way.cut()
		}
		time.Sleep(3 * lastRetry)
		synctest.Wait()
		select {
		case frame := <-client.Frames():
			state = frame.State
		default: // nothing has changed
		}
		compare(t, hub, state)
	}
}

// anything is a random change of a few rows.
func anything(random *rand.Rand) Content {
	id := func() string { return fmt.Sprint(random.IntN(25)) }
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	c := Content{Gone: &Gone{}}
	for range random.IntN(4) {
		n := random.IntN(3)
		c.Keys = append(c.Keys, &Key{ID: id(), Failures: n})
		c.Going = append(c.Going, &GoingNode{Name: id(), State: pick("Pending", "Committed"), Marked: n})
		c.Pods = append(c.Pods, &Pod{UID: id(), Node: id(), Verdict: pick("Lost", "Returns"), Message: pick("", "\x1b[2J")})
		c.Coming = append(c.Coming, &ComingNode{ID: id(), Held: n == 0, Expected: n})
		c.Standing = append(c.Standing, &Standing{Node: id(), CapacityType: pick("spot", "on-demand"), Verdicts: map[string]int{"Lost": n}})
		c.Gone.Keys, c.Gone.Going, c.Gone.Pods = append(c.Gone.Keys, id()), append(c.Gone.Going, id()), append(c.Gone.Pods, id())
		c.Gone.Coming, c.Gone.Standing = append(c.Gone.Coming, id()), append(c.Gone.Standing, id())
	}
	if random.IntN(3) == 0 {
		c.Queue = &Totals{Depth: random.IntN(3)}
	}
	return c
}

// compare holds a client's state against a snapshot of the hub.
func compare(t *testing.T, hub *Hub, state *State) {
	t.Helper()
	r := mustAttach(t, hub)
	want, err := new(session).apply(r.next(time.Now()))
	hub.detach(r)
	if err != nil {
		t.Fatal(err)
	}
	if state == nil {
		t.Fatal("the client has nothing")
	}
	got := *state
	want.Sequence, want.Time = got.Sequence, got.Time
	if len(want.Left) == 0 {
		want.Left, got.Left = nil, map[string]int(nil)
	}
	if got, want := asJSON(t, &got), asJSON(t, want); got != want {
		t.Fatalf("the client has\n%s\nthe hub\n%s", got, want)
	}
}

// way is a network of its own: a listener and a Dialer in one, whose connections can be cut.
type way struct {
	conns chan net.Conn
	once  sync.Once
	mu    sync.Mutex
	last  net.Conn // guarded by mu
}

func (w *way) Accept() (net.Conn, error) {
	conn, open := <-w.conns
	if !open {
		return nil, io.EOF
	}
	return conn, nil
}

func (w *way) Close() error {
	w.once.Do(func() { close(w.conns) })
	return nil
}

func (w *way) Addr() net.Addr { return &net.TCPAddr{} }

func (w *way) Dial(ctx context.Context) (*Connection, error) {
	body, err := Get(ctx, func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		w.mu.Lock()
		w.last = near
		w.mu.Unlock()
		w.conns <- far
		return near, nil
	}, "localhost:1", StreamPath)
	if err != nil {
		return nil, err
	}
	return &Connection{Body: body, Peer: "way"}, nil
}

func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.last.Close()
}
