package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// stormEnv shortens BenchmarkStorm, as a duration.
const stormEnv = "ROLLCALL_STORM"

const (
	stormReconciles = 100 // a second
	stormPods       = 18  // rows of each, every one changed, and two decisions: 2,000 records a second
)

// BenchmarkStorm runs 2,000 records a second for a minute against two hubs in turns: one with four readers over HTTP, one
// of which stops reading, and one without any. It reports what a reconcile spends on showing itself with both, and fails
// unless the stopped reader is told that it fell behind and the others end up with exactly what the hub has, every
// decision included.
func BenchmarkStorm(b *testing.B) {
	length := time.Minute
	if text := os.Getenv(stormEnv); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		storm(b, length)
	}
	b.ReportMetric(0, "ns/op")
}

func storm(b *testing.B, length time.Duration) {
	watched, alone := NewHub(Server{Boot: "storm"}, time.Now), NewHub(Server{}, time.Now)
	address, closeServer := serveNarrow(b, watched)
	defer closeServer()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer watched.Close()
	readers := make([]*stormReader, 3)
	for i := range readers {
		readers[i] = &stormReader{news: make(chan struct{}, 1)}
		body := dialNarrow(b, address)
		reading.Go(func() { readers[i].read(body) })
	}
	stopped := &stoppedReader{resume: make(chan struct{}), done: make(chan struct{})}
	body := dialNarrow(b, address)
	reading.Go(func() { stopped.read(body) })

	with, without := rain(watched, alone, length, min(length/2, away), func() { close(stopped.resume) })

	<-stopped.done
	if stopped.err != nil || stopped.last.Kind != FellBehind {
		b.Errorf("the reader that stopped got %v in the end, %v", stopped.last.Kind, stopped.err)
	}
	want, err := new(session).apply(mustNext(b, watched))
	if err != nil {
		b.Fatal(err)
	}
	for i, r := range readers {
		if err := r.reaches(want); err != nil {
			b.Errorf("reader %d: %v", i, err)
		}
	}
	report(b, "with-readers", with)
	report(b, "without", without)
	b.ReportMetric(float64(len(with)*(stormPods+2))/length.Seconds(), "records/s")
}

// away is how long one reader reads nothing: longer than it may, and not so long that it is cut without a word.
const away = 15 * time.Second

// rain reconciles on both hubs, each first every other time, and returns how long each took. resume is called at its time.
func rain(watched, alone *Hub, length, resumes time.Duration, resume func()) (with, without []time.Duration) {
	rounds := int(length.Seconds() * stormReconciles)
	tick := time.NewTicker(time.Second / stormReconciles)
	defer tick.Stop()
	for i := range rounds {
		<-tick.C
		if i == int(resumes.Seconds()*stormReconciles) {
			resume()
		}
		if i%2 == 0 {
			with = append(with, reconcileOnce(watched, i))
			without = append(without, reconcileOnce(alone, i))
		} else {
			without = append(without, reconcileOnce(alone, i))
			with = append(with, reconcileOnce(watched, i))
		}
	}
	return with, without
}

// reconcileOnce shows what one reconcile of a going node shows.
func reconcileOnce(hub *Hub, i int) time.Duration {
	begun := time.Now()
	node := fmt.Sprintf("node-%d", i%50)
	rows := make([]*Pod, stormPods)
	for n := range rows {
		verdict := "Returns"
		if (i/50+n)%9 == 0 {
			verdict = "Lost"
		}
		rows[n] = &Pod{
			UID: fmt.Sprintf("%s-%d", node, n), Namespace: "default", Name: fmt.Sprintf("pod-%d", n), Node: node, Verdict: verdict, Reason: "ReplicaSet",
			Certainty: "Certain", Message: fmt.Sprintf("ReplicaSet default/web makes it again; seen %d times", i),
		}
	}
	hub.Put(Content{Going: []*GoingNode{{Name: node, State: "Committed", Pods: stormPods, Marked: i}}, Pods: rows})
	for range 2 {
		hub.Decide(&Decision{Time: begun, What: "mark", Object: "default/pod", Node: node, Verdict: "Lost", Reason: "NoController"})
	}
	return time.Since(begun)
}

// stormReader is a client that reads all the time.
type stormReader struct {
	session session
	news    chan struct{} // has one place
	mu      sync.Mutex
	state   *State // guarded by mu, as err
	err     error
}

func (r *stormReader) read(body io.ReadCloser) {
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var record Record
		err := json.Unmarshal(lines.Bytes(), &record)
		var state *State
		if err == nil {
			state, err = r.session.apply(&record)
		}
		r.mu.Lock()
		r.state, r.err = state, err
		r.mu.Unlock()
		select {
		case r.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// reaches waits until the reader knows all decisions, and compares the rest.
func (r *stormReader) reaches(want *State) error {
	last := want.Decisions[len(want.Decisions)-1].Sequence
	tooLate := time.After(30 * time.Second)
	for {
		r.mu.Lock()
		state, err := r.state, r.err
		r.mu.Unlock()
		switch {
		case err != nil:
			return err
		case state == nil || len(state.Decisions) == 0 || state.Decisions[len(state.Decisions)-1].Sequence != last:
			select {
			case <-r.news:
				continue
			case <-tooLate:
				return fmt.Errorf("it never came to decision %d", last)
			}
		case state.LostDecisions != 0:
			return fmt.Errorf("%d decisions did not come", state.LostDecisions)
		}
		got, _ := json.Marshal([]any{state.Going, state.Pods})
		expected, _ := json.Marshal([]any{want.Going, want.Pods})
		if string(got) != string(expected) {
			return fmt.Errorf("it knows other rows than the hub has")
		}
		return nil
	}
}

// stoppedReader reads the snapshot, stops, and reads the rest when told to.
type stoppedReader struct {
	resume, done chan struct{}
	last         Record
	err          error
}

func (r *stoppedReader) read(body io.ReadCloser) {
	defer close(r.done)
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	lines.Scan()
	<-r.resume
	for lines.Scan() {
		r.last = Record{}
		if r.err = json.Unmarshal(lines.Bytes(), &r.last); r.err != nil {
			return
		}
	}
	r.err = lines.Err()
}

func report(b *testing.B, name string, times []time.Duration) {
	slices.Sort(times)
	for _, percent := range []int{50, 99} {
		b.ReportMetric(float64(times[(len(times)-1)*percent/100].Nanoseconds())/1000, fmt.Sprintf("%s-p%d-µs", name, percent))
	}
}

func mustNext(b *testing.B, hub *Hub) *Record {
	b.Helper()
	r, err := hub.attach()
	if err != nil {
		b.Fatal(err)
	}
	defer hub.detach(r)
	return r.next(time.Now())
}

// narrow bounds the sockets' buffers, so that a reader that stops is noticed in a minute at this rate.
const narrow = 64 << 10

func serveNarrow(b *testing.B, hub *Hub) (address string, stop func()) {
	b.Helper()
	server := httptest.NewUnstartedServer(&Handler{Hub: hub})
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(narrow)
		return ctx
	}
	server.Start()
	return server.Listener.Addr().String(), server.Close
}

func dialNarrow(b *testing.B, address string) io.ReadCloser {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			_ = conn.(*net.TCPConn).SetReadBuffer(narrow)
		}
		return conn, err
	}}}
	response, err := client.Get("http://" + address + StreamPath)
	if err != nil {
		b.Fatal(err)
	}
	return response.Body
}
