package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serveHub serves the hub over HTTP until the test ends.
func serveHub(t *testing.T, handler *Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(handler.Hub.Close) // first: its streams end
	return server
}

func follow(t *testing.T, dialer Dialer) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	connection, err := dialer.Dial(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = connection.Body.Close()
	})
	lines := bufio.NewScanner(connection.Body)
	lines.Buffer(nil, maxLine)
	return lines
}

func nextRecord(t *testing.T, lines *bufio.Scanner) *Record {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("the stream ended: %v", lines.Err())
	}
	record := &Record{}
	if err := json.Unmarshal(lines.Bytes(), record); err != nil {
		t.Fatal(err)
	}
	return record
}

// The stream over HTTP: a snapshot, then updates, until the hub ends.
func TestStreamOverHTTP(t *testing.T) {
	hub := NewHub(Server{Boot: "b"}, time.Now)
	hub.Put(Content{Pods: []*Pod{lostPod("1")}})
	server := serveHub(t, &Handler{Hub: hub})
	lines := follow(t, Address(server.Listener.Addr().String()))
	if first := nextRecord(t, lines); first.Kind != Snapshot || len(first.Pods) != 1 || first.Server.Boot != "b" {
		t.Fatalf("first: %+v", first)
	}
	hub.Put(Content{Pods: []*Pod{lostPod("2")}})
	if update := nextRecord(t, lines); update.Kind != Update || update.Sequence != 2 || update.Pods[0].UID != "2" {
		t.Errorf("then: %+v", update)
	}
	hub.Close()
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the hub's end: %q, %v", lines.Text(), lines.Err())
	}
}

// GET /v1/snapshot is one record, and takes no place.
func TestSnapshotOverHTTP(t *testing.T) {
	hub := NewHub(Server{Boot: "b"}, time.Now)
	hub.Put(Content{Pods: []*Pod{lostPod("1")}})
	server := serveHub(t, &Handler{Hub: hub})
	for range 2 * MaxReaders {
		response, err := http.Get(server.URL + SnapshotPath)
		if err != nil {
			t.Fatal(err)
		}
		var record Record
		if err := json.NewDecoder(response.Body).Decode(&record); err != nil || record.Kind != Snapshot || len(record.Pods) != 1 {
			t.Fatalf("%+v, %v", record, err)
		}
		_ = response.Body.Close()
	}
}

// Who is not meant, or asks for what there is not, gets a clear answer and no data.
func TestRefusedRequests(t *testing.T) {
	full := NewHub(Server{}, time.Now)
	for range MaxReaders {
		mustAttach(t, full)
	}
	open := NewHub(Server{}, time.Now)
	standby := func(holder string) *Handler {
		return &Handler{Hub: open, Leads: func() (bool, string) { return false, holder }}
	}
	leads := &Handler{Hub: open, Leads: func() (bool, string) { return true, "" }}
	for name, tc := range map[string]struct {
		handler            *Handler
		method, host, path string
		status             int
		says               string
	}{
		"a page's own name":         {leads, "GET", "evil.example:9790", SnapshotPath, 403, "called localhost"},
		"no name":                   {leads, "GET", "", SnapshotPath, 403, "called localhost"},
		"localhost":                 {leads, "GET", "localhost:1", SnapshotPath, 200, `"kind":"snapshot"`},
		"localhost without port":    {leads, "GET", "LOCALHOST", SnapshotPath, 200, `"kind":"snapshot"`},
		"an address":                {leads, "GET", "127.0.0.1:9790", SnapshotPath, 200, `"kind":"snapshot"`},
		"an address of version 6":   {leads, "GET", "[::1]:9790", SnapshotPath, 200, `"kind":"snapshot"`},
		"one without port":          {leads, "GET", "[::1]", SnapshotPath, 200, `"kind":"snapshot"`},
		"a name that has localhost": {leads, "GET", "localhost.evil.example", SnapshotPath, 403, "called localhost"},
		"another path":              {leads, "GET", "localhost", "/", 404, "/v1/stream and /v1/snapshot"},
		"another method":            {leads, "POST", "localhost", StreamPath, 405, "only read"},
		"another leads":             {standby("pod-a_1"), "GET", "localhost", StreamPath, 503, "pod-a_1 does"},
		"nobody leads":              {standby(""), "GET", "localhost", SnapshotPath, 503, "nobody does yet"},
		"no place":                  {&Handler{Hub: full}, "GET", "localhost", StreamPath, 503, "all 8 places"},
	} {
		request := httptest.NewRequest(tc.method, "http://localhost"+tc.path, nil)
		request.Host = tc.host
		answer := &recordedAnswer{httptest.NewRecorder()}
		tc.handler.ServeHTTP(answer, request)
		if answer.Code != tc.status || !strings.Contains(answer.Body.String(), tc.says) {
			t.Errorf("%s: %d %q, want %d %q", name, answer.Code, answer.Body, tc.status, tc.says)
		}
	}
	// The words reach the client.
	server := serveHub(t, standby("pod-a_1"))
	_, err := Address(server.Listener.Addr().String()).Dial(t.Context())
	var e *ConnectError
	if !errors.As(err, &e) || !strings.Contains(e.Error(), "pod-a_1 does") {
		t.Errorf("the client says %v", err)
	}
	if _, err := Address("127.0.0.1:1").Dial(t.Context()); !errors.As(err, &e) || !strings.Contains(e.Error(), "no controller answers at 127.0.0.1:1") || e.Hint() == "" {
		t.Errorf("nobody there: %v", err)
	}
}

// recordedAnswer has the deadlines that a real connection has.
type recordedAnswer struct{ *httptest.ResponseRecorder }

func (recordedAnswer) SetWriteDeadline(time.Time) error { return nil }

// Everything in its time: updates at most ten a second, what is urgent at once, heartbeats in silence.
func TestPace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hub := NewHub(Server{}, time.Now)
		connection, err := InProcess{Hub: hub, Peer: "here"}.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Body.Close()
		lines := bufio.NewScanner(connection.Body)
		next := func(what string, kind RecordKind, after time.Duration) *Record {
			t.Helper()
			begun := time.Now()
			record := nextRecord(t, lines)
			if took := time.Since(begun); record.Kind != kind || took != after {
				t.Errorf("%s: %s after %v, want %s after %v", what, record.Kind, took, kind, after)
			}
			return record
		}
		next("at first", Snapshot, 0)
		for i := range 100 {
			hub.Put(Content{Going: []*GoingNode{{Name: "n", State: "Committed", Pods: i}}})
		}
		synctest.Wait()
		time.Sleep(30 * time.Millisecond) // the first of these was urgent, and came too soon after the snapshot
		if record := next("merged", Update, 70*time.Millisecond); record.Going[0].Pods != 99 {
			t.Errorf("merged: %+v", record.Going)
		}
		time.Sleep(50 * time.Millisecond)
		hub.Put(Content{Pods: []*Pod{{UID: "1", Verdict: "Lost"}}})
		next("urgent", Update, 0)
		hub.Put(Content{Pods: []*Pod{{UID: "2", Verdict: "Lost"}}})
		next("urgent, right after another", Update, 50*time.Millisecond)
		next("silence", Heartbeat, heartbeatEvery)
		next("silence", Heartbeat, heartbeatEvery)
		hub.Close()
		if lines.Scan() {
			t.Errorf("after the end: %s", lines.Text())
		}
	})
}

// A reader that stops reading is told so when it comes back, and cut; one that stays away is cut without a word.
func TestStoppedReader(t *testing.T) {
	for name, away := range map[string]time.Duration{"comes back": slowWrite + time.Second, "stays away": lastWrite + time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				hub := NewHub(Server{}, time.Now)
				connection, err := InProcess{Hub: hub}.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer connection.Body.Close()
				lines := bufio.NewScanner(connection.Body)
				nextRecord(t, lines)
				hub.Put(Content{Pods: []*Pod{lostPod("1")}})
				time.Sleep(away)
				hub.Put(Content{Pods: []*Pod{lostPod("2")}})
				if away > lastWrite {
					if _, err := io.ReadAll(connection.Body); err != nil {
						t.Errorf("cut: %v", err)
					}
				} else {
					if record := nextRecord(t, lines); record.Kind != Update || record.Pods[0].UID != "1" {
						t.Errorf("what was begun: %+v", record)
					}
					if record := nextRecord(t, lines); record.Kind != FellBehind || record.Sequence != 3 || record.Message != "nothing was read for 5s" {
						t.Errorf("the last word: %+v", record)
					}
					if lines.Scan() {
						t.Errorf("after the last word: %s", lines.Text())
					}
				}
				synctest.Wait()
				hub.mu.Lock()
				defer hub.mu.Unlock()
				if len(hub.readers) != 0 {
					t.Error("it still has its place")
				}
			})
		})
	}
}

// A client that stays connected to a hub knows what the hub knows.
func TestClientKnowsWhatTheHubKnows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hub := NewHub(Server{Boot: "b"}, time.Now)
		client := NewClient(InProcess{Hub: hub, Peer: "here"}, ClientOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- client.Run(ctx) }()
		for i := range 500 {
			id := fmt.Sprint(i % 40)
			content := Content{
				Keys: []*Key{{ID: id, Added: int64(i)}}, Coming: []*ComingNode{{ID: id, Expected: i}}, Queue: &Totals{Depth: i},
				Pods: []*Pod{{UID: id, Node: fmt.Sprint(i % 7), Verdict: "Lost"}}, Standing: []*Standing{{Node: id, Verdicts: map[string]int{"Lost": i}}},
			}
			if i%3 == 0 {
				content.Gone = &Gone{Keys: []string{fmt.Sprint(i % 11)}, Pods: []string{fmt.Sprint(i % 13)}, Standing: []string{fmt.Sprint(i % 17)}}
			}
			hub.Put(content)
			hub.Decide(&Decision{What: "mark", Object: id})
			time.Sleep(time.Duration(i%9) * 10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		state := (<-client.Frames()).State
		r := mustAttach(t, hub)
		want, err := new(session).apply(r.next(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		want.Sequence, want.Time = state.Sequence, state.Time
		if got, want := asJSON(t, state), asJSON(t, want); got != want {
			t.Errorf("the client has\n%s\nthe hub\n%s", got, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
