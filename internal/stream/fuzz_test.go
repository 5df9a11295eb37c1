package stream

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
)

// Whatever bytes come, a client neither panics nor keeps what a terminal would obey, and what it keeps is bounded.
func FuzzClientTakesAnything(f *testing.F) {
	snapshot := `{"kind":"snapshot","seq":1,"server":{"version":1,"boot":"a","heartbeatSeconds":10}}`
	f.Add([]byte(snapshot + "\n" + `{"kind":"update","seq":2,"pods":[{"uid":"1","name":"\u001b[2J"},null],"gone":{"pods":["1"]}}` + "\n"))
	f.Add([]byte(snapshot + "\n" + `{"kind":"update","seq":2,"left":{"pods":-1},"decisions":[{"seq":18446744073709551615},{"seq":1},null]}` + "\n"))
	f.Add([]byte(`{"kind":"snapshot","seq":1,"server":{"version":2}}` + "\n"))
	f.Add([]byte(snapshot[:40]))
	f.Add([]byte(snapshot + "\n" + `{"kind":"fell-behind","seq":2,"message":"` + strings.Repeat("m", 3000) + `"}` + "\n"))
	f.Add([]byte(snapshot + "\n" + `{"kind":"update","seq":2,"keys":[{"id":"` + strings.Repeat("k", 2000) + `"}],"going":[{"name":"","verdicts":{"\u202e":1}}]}` + "\n"))
	f.Add([]byte(snapshot + "\n\xff\xfe\n" + `[1]` + "\n" + `"text"` + "\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		s := &session{}
		client := &Client{options: ClientOptions{Clock: (&at{begin}).Now}, frames: make(chan Frame, 1)}
		lines := make(chan []byte)
		ended := make(chan error, 1)
		go func() { ended <- readLines(t.Context(), bytes.NewReader(body), lines) }()
		var before []byte
		var last *State
		for line := range lines {
			err := client.take(s, line)
			if last != nil {
				if now, _ := json.Marshal(last); !bytes.Equal(now, before) { // a State can always be written
					t.Fatalf("a state that was handed out has changed from\n%s\nto\n%s", before, now)
				}
			}
			if err != nil {
				if text := printable(err.Error()); len(text) > maxText {
					t.Fatalf("an error of %d bytes", len(text))
				}
				continue
			}
			last = client.frame.State
			before, _ = json.Marshal(last)
			walk(reflect.ValueOf(last).Elem(), "State", func(path, text string) {
				if len(text) > maxText || text != printable(text) {
					t.Fatalf("%s is %q", path, text)
				}
			})
			if h := last.Server.HeartbeatSeconds; h < 1 || h > 60 {
				t.Fatalf("a heartbeat of %d s", h)
			}
		}
		if err := <-ended; err == nil || err == io.EOF {
			t.Fatalf("the stream ended with %v", err)
		}
	})
}

// What a hub says, a client knows: rows with any texts go there and come out as the hub had them.
func FuzzRoundTrip(f *testing.F) {
	f.Add("uid", "name", "n1", "Lost", "message", uint8(3))
	f.Add("", "\x1b]52;c;AAAA\x07", "n\u202e", "\xff\xfe", "<script>&amp;\"\\", uint8(0))
	f.Add("\u2028", strings.Repeat("é", 2000), "", "Returns", "\x00", uint8(255))
	f.Fuzz(func(t *testing.T, uid, name, node, verdict, message string, n uint8) {
		clock := &at{begin}
		hub := NewHub(Server{Boot: name}, clock.Now)
		r := mustAttach(t, hub)
		s := &session{}
		send := func() *State {
			line, err := json.Marshal(r.next(clock.now))
			if err != nil {
				t.Fatal(err)
			}
			record := &Record{}
			if err := json.Unmarshal(line, record); err != nil {
				t.Fatal(err)
			}
			state, err := s.apply(record)
			if err != nil {
				t.Fatal(err)
			}
			return state
		}
		send()
		verdicts := map[string]int{}
		for range n {
			verdicts[verdict+strings.Repeat("v", len(verdicts))] = 1
		}
		pod := Pod{UID: uid, Name: name, Node: node, Verdict: verdict, Message: message, Flags: strings.SplitN(message, "a", int(n)+1)}
		hub.Put(Content{Pods: []*Pod{&pod}, Going: []*GoingNode{{Name: node, Verdicts: verdicts}}, Keys: []*Key{{ID: uid, LastError: message}}})
		hub.Decide(&Decision{What: name, Why: message})
		state := send()
		if len(state.pods) != 1 || !reflect.DeepEqual(state.pods[0], hub.pods.all()[0]) {
			t.Fatalf("the client has %+v, the hub %+v", state.pods, hub.pods.all()[0])
		}
		if !reflect.DeepEqual(state.Decisions[0].Why, printable(message)) || state.Server.Boot != printable(name) {
			t.Errorf("the client has %+v", state.Decisions[0])
		}
		hub.Put(Content{Gone: &Gone{Pods: []string{uid}, Going: []string{node}, Keys: []string{uid}}})
		if state := send(); len(state.pods)+len(state.Pods)+len(state.Going)+len(state.Keys) != 0 {
			t.Errorf("still there: %+v", state)
		}
	})
}
