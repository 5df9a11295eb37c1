package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script dials what a test says, one connection after the other.
type script struct {
	dials chan func() (*Connection, error)
}

func (s *script) Dial(ctx context.Context) (*Connection, error) {
	select {
	case next := <-s.dials:
		return next()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stage is a client under a script, in a bubble of its own time.
type stage struct {
	*testing.T
	script *script
	client *Client
	done   chan error
}

func newStage(t *testing.T, o ClientOptions) *stage {
	s := &stage{T: t, script: &script{make(chan func() (*Connection, error))}, done: make(chan error, 1)}
	o.Jitter = func() float64 { return 0.5 }
	s.client = NewClient(s.script, o)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { s.done <- s.client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-s.done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	return s
}

// connects lets the client's next attempt succeed and returns where to write.
func (s *stage) connects() *line {
	reader, writer := io.Pipe()
	s.script.dials <- func() (*Connection, error) { return &Connection{Body: reader, Peer: "pod"}, nil }
	return &line{s.T, writer}
}

func (s *stage) fails(err error) {
	s.script.dials <- func() (*Connection, error) { return nil, err }
}

// frame is the newest frame, once there is nothing more to do at this moment.
func (s *stage) frame() Frame {
	s.Helper()
	synctest.Wait()
	select {
	case f := <-s.client.Frames():
		return f
	default:
		s.Fatal("there is no new frame")
		return Frame{}
	}
}

func (s *stage) noFrame(why string) {
	s.Helper()
	synctest.Wait()
	select {
	case f := <-s.client.Frames():
		s.Errorf("%s: a frame came: %+v", why, f)
	default:
	}
}

type line struct {
	t *testing.T
	w *io.PipeWriter
}

func (l *line) say(r *Record) {
	l.t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.w.Write(append(text, '\n')); err != nil {
		l.t.Errorf("nobody reads: %v", err)
	}
}

func (l *line) snapshot(boot string, c Content) {
	l.t.Helper()
	l.say(&Record{Kind: Snapshot, Sequence: 1, Server: &Server{Version: Version, Boot: boot, HeartbeatSeconds: 10}, Content: c})
}

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// At most ten frames a second come, the last of them always, and none while nothing changes.
func TestFrames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, ClientOptions{})
		if f := s.frame(); f.Phase != Connecting || f.State != nil {
			t.Fatalf("at first: %+v", f)
		}
		to := s.connects()
		to.snapshot("a", Content{Going: []*GoingNode{{Name: "n", Marked: 0}}})
		f := s.frame()
		if f.Phase != Live || f.Peer != "pod" || f.State.Going[0].Name != "n" || f.Notice != "" {
			t.Fatalf("with a snapshot: %+v", f)
		}
		for i := range uint64(50) {
			to.say(&Record{Kind: Update, Sequence: i + 2, Content: Content{Going: []*GoingNode{{Name: "n", Marked: int(i) + 1}}}})
		}
		s.noFrame("within 100 ms of the last")
		time.Sleep(frameEvery)
		next := s.frame()
		if next.State.Going[0].Marked != 50 || next.State.Sequence != 51 {
			t.Errorf("merged: %+v", next.State)
		}
		if f.State.Going[0].Marked != 0 {
			t.Error("a state that was handed out has changed")
		}
		time.Sleep(20 * time.Second)
		s.noFrame("nothing came")
	})
}

// A silent connection is given up after three heartbeats, and a broken one at once; the pauses grow up to a bound.
func TestReconnects(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, ClientOptions{})
		to := s.connects()
		to.snapshot("a", Content{})
		s.frame()
		time.Sleep(silences*10*time.Second - 1)
		s.noFrame("it may still come")
		time.Sleep(time.Nanosecond)
		if f := s.frame(); f.Phase != Disconnected || !strings.Contains(f.Notice, "nothing came for 30s") || time.Until(f.Retry) != firstRetry/2 {
			t.Errorf("silent: %+v, again in %v", f, time.Until(f.Retry))
		}
		var pauses []time.Duration
		for range 5 {
			s.fails(errors.New("no"))
			f := s.frame()
			pauses = append(pauses, time.Until(f.Retry))
			if f.Phase != Disconnected || f.Notice != "no" || f.State == nil {
				t.Errorf("still nobody: %+v", f)
			}
		}
		if got := fmt.Sprint(pauses); got != "[250ms 500ms 1s 1s 1s]" {
			t.Errorf("pauses (with half the jitter) %s", got)
		}
		s.fails(&ConnectError{Problem: "you may not", Lasting: true})
		if f := s.frame(); time.Until(f.Retry) != lastingRetry || f.Notice != "you may not" {
			t.Errorf("refused: %+v", f)
		}
		to = s.connects()
		to.snapshot("b", Content{})
		if f := s.frame(); f.Phase != Live || f.Reconnects != 7 || f.State.Server.Boot != "b" || f.Notice != "" || !f.Retry.IsZero() {
			t.Errorf("back: %+v", f)
		}
		_ = to.w.Close()
		if f := s.frame(); f.Phase != Disconnected || time.Until(f.Retry) != firstRetry/2 {
			t.Errorf("after a success, the pauses begin anew: %+v", f)
		}
	})
}

// The pause is anything up to the bound.
func TestBackoff(t *testing.T) {
	for failures, bound := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second} {
		for _, jitter := range []float64{0, 0.25, 0.999} {
			if got := backoff(failures, lastRetry, func() float64 { return jitter }); got != time.Duration(jitter*float64(bound)) {
				t.Errorf("after %d failures, jitter %v: %v", failures, jitter, got)
			}
		}
	}
	if got := backoff(1<<40, lastRetry, func() float64 { return 1 }); got != lastRetry {
		t.Errorf("after very many: %v", got)
	}
}

// What a stream must not do ends the connection, with the reason.
func TestBrokenStreams(t *testing.T) {
	update := func(seq uint64) *Record { return &Record{Kind: Update, Sequence: seq} }
	snapshot := &Record{Kind: Snapshot, Sequence: 1, Server: &Server{Version: Version, HeartbeatSeconds: 10}}
	for name, tc := range map[string]struct {
		records    []*Record
		notice     string
		fellBehind int
		retry      time.Duration
	}{
		"no snapshot":      {[]*Record{update(1)}, "does not begin with a snapshot", 0, firstRetry / 2},
		"a gap":            {[]*Record{snapshot, update(3)}, "record 3 came after 1", 0, firstRetry / 2},
		"nobody's":         {[]*Record{{Kind: Snapshot, Sequence: 1}}, "does not say whose", 0, firstRetry / 2},
		"another version":  {[]*Record{{Kind: Snapshot, Sequence: 1, Server: &Server{Version: 2, Program: "v9"}}}, "speaks version 2", 0, lastingRetry},
		"too slow":         {[]*Record{snapshot, {Kind: FellBehind, Sequence: 2, Message: "1\x1b2"}}, "too slow: 1�2", 1, firstRetry / 2},
		"a kind to come":   {[]*Record{snapshot, {Kind: "new", Sequence: 2}, update(4)}, "record 4 came after 2", 0, firstRetry / 2},
		"two times over":   {[]*Record{snapshot, update(2), update(2)}, "record 2 came after 2", 0, firstRetry / 2},
		"a second in time": {[]*Record{snapshot, snapshot, update(2), update(9)}, "record 9 came after 2", 0, firstRetry / 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStage(t, ClientOptions{})
				to := s.connects()
				for _, r := range tc.records {
					to.say(r)
				}
				f := s.frame()
				if f.Phase != Disconnected || !strings.Contains(f.Notice, tc.notice) || f.FellBehind != tc.fellBehind || time.Until(f.Retry) != tc.retry {
					t.Errorf("%+v", f)
				}
			})
		})
	}
}

// Decisions that never came are counted: between records, and over a reconnect to the same boot; not over another boot.
func TestLostDecisions(t *testing.T) {
	made := func(sequences ...uint64) Content {
		var c Content
		for _, n := range sequences {
			c.Decisions = append(c.Decisions, &Decision{Sequence: n})
		}
		return c
	}
	inBubble(t, func(t *testing.T) {
		s := newStage(t, ClientOptions{})
		var to *line
		expect := func(what string, lost uint64, kept int) {
			t.Helper()
			time.Sleep(frameEvery)
			if f := s.frame(); f.State.LostDecisions != lost || len(f.State.Decisions) != kept {
				t.Errorf("%s: %d lost, %d kept, want %d and %d", what, f.State.LostDecisions, len(f.State.Decisions), lost, kept)
			}
		}
		to = s.connects()
		to.snapshot("a", made(7, 8))
		expect("what was before is nobody's loss", 0, 2)
		to.say(&Record{Kind: Update, Sequence: 2, Content: made(9, 10, 13)})
		expect("a gap", 2, 5)
		_ = to.w.Close()
		to = s.connects()
		to.snapshot("a", made(12, 13, 14, 15))
		expect("the same boot again", 2, 7)
		_ = to.w.Close()
		to = s.connects()
		to.snapshot("a", made(20))
		expect("the same boot, too late", 6, 8)
		_ = to.w.Close()
		to = s.connects()
		to.snapshot("b", made(4))
		expect("another boot", 0, 1)
	})
}

// The tap has every line as it came; its error ends the client.
func TestTap(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		full := errors.New("the disk is full")
		var lines []string
		dialer := &script{make(chan func() (*Connection, error), 1)}
		client := NewClient(dialer, ClientOptions{Tap: func(line []byte) error {
			if lines = append(lines, string(line)); len(lines) == 2 {
				return full
			}
			return nil
		}})
		body := `{"kind":"snapshot","seq":1,"server":{"version":1}}` + "\n\n" + `{"kind":"heartbeat","seq":2,"extra":1}` + "\n"
		dialer.dials <- func() (*Connection, error) {
			return &Connection{Body: io.NopCloser(strings.NewReader(body))}, nil
		}
		if err := client.Run(t.Context()); err != full {
			t.Errorf("it ended with %v", err)
		}
		if want := strings.Fields(body); fmt.Sprint(lines) != fmt.Sprint(want) {
			t.Errorf("it saw %q, want %q", lines, want)
		}
		if _, open := <-client.Frames(); open {
			for range client.Frames() { // one frame may wait
				t.Error("more than one frame waits")
			}
		}
	})
}

// What a broken stream leaves of a line is no record, and does not hide why it broke; nor is a record that has no place in
// the stream given on.
func TestTapHasUsableRecordsOnly(t *testing.T) {
	const snapshot, broke = `{"kind":"snapshot","seq":1,"server":{"version":1,"heartbeatSeconds":10}}`, "the stream broke: a reset"
	const cut = `{"kind":"fell-behind","seq":2}`
	for name, tc := range map[string]struct {
		body, notice string
		tapped       []string
	}{
		"half a record":        {snapshot + "\n" + `{"kind":"upda`, broke, []string{snapshot}},
		"half a snapshot":      {snapshot[:20], broke, nil},
		"a whole one, unended": {snapshot, broke, nil},
		"no JSON":              {snapshot + "\n{\n", "a record cannot be read", []string{snapshot}},
		"another version":      {`{"kind":"snapshot","seq":1,"server":{"version":2}}` + "\n", "speaks version 2", nil},
		"too slow":             {snapshot + "\n" + cut + "\n", "too slow", []string{snapshot, cut}},
		"too slow at once":     {cut + "\n", "too slow", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var tapped []string
				s := newStage(t, ClientOptions{Tap: func(line []byte) error {
					tapped = append(tapped, string(line))
					return nil
				}})
				to := s.connects()
				_, _ = io.WriteString(to.w, tc.body)
				_ = to.w.CloseWithError(errors.New("a reset"))
				if f := s.frame(); f.Phase != Disconnected || !strings.Contains(f.Notice, tc.notice) {
					t.Errorf("%+v, want the notice %q", f, tc.notice)
				}
				if !slices.Equal(tapped, tc.tapped) {
					t.Errorf("tapped %q, want %q", tapped, tc.tapped)
				}
			})
		})
	}
}

// A record that takes long to come is no silence.
func TestSlowSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, ClientOptions{})
		to := s.connects()
		for _, part := range []string{`{"kind":"snapshot",`, `"seq":1,`, `"server":{"version":1,`, `"heartbeatSeconds":10}}`, "\n"} {
			_, _ = io.WriteString(to.w, part)
			time.Sleep(patience - time.Second)
		}
		if f := s.frame(); f.Phase != Live || f.Reconnects != 0 {
			t.Errorf("slow: %+v", f)
		}
		time.Sleep(silences*10*time.Second - (patience - time.Second))
		if f := s.frame(); f.Phase != Disconnected {
			t.Errorf("silent: %+v", f)
		}
	})
}

// An attempt that hangs ends in one error of one line with the way out: the dialer's own, where it has words.
func TestPatience(t *testing.T) {
	for name, tc := range map[string]struct{ says, want *ConnectError }{
		"no words":  {nil, &ConnectError{Problem: "the controller was not reached: no answer for 15s", Advice: "check the way to it"}},
		"its words": {&ConnectError{Problem: "the cluster at h does not answer", Advice: "look"}, &ConnectError{Problem: "the cluster at h does not answer", Advice: "look"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				client := NewClient(hanging{tc.says}, ClientOptions{Jitter: func() float64 { return 1 }})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- client.Run(ctx) }()
				time.Sleep(patience)
				synctest.Wait()
				f := <-client.Frames()
				var e *ConnectError
				if f.Phase != Disconnected || !errors.As(f.Err, &e) || f.Notice != tc.want.Problem || f.Err.Error() != f.Notice || e.Advice != tc.want.Advice {
					t.Errorf("%+v", f)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrNoAnswer)
	if _, err := Address("127.0.0.1:1").Dial(ctx); err == nil || err.Error() != "no controller answers at 127.0.0.1:1: no answer for 15s" {
		t.Errorf("an address: %v", err)
	}
}

// hanging dials for ever, and says in the end what it has to say.
type hanging struct{ says *ConnectError }

func (h hanging) Dial(ctx context.Context) (*Connection, error) {
	<-ctx.Done()
	if h.says != nil && context.Cause(ctx) == ErrNoAnswer {
		return nil, h.says
	}
	return nil, ctx.Err()
}
