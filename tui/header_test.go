package tui

import (
	"regexp"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// What a person must know of the connection is there at every width.
func TestHeaderAtEveryWidth(t *testing.T) {
	for width := leastWidth; width <= 220; width++ {
		for mode, short := range map[string]string{ModeCluster: "in-cluster", ModeLocal: "local", ModeRecording: "recording"} {
			s := newStage(width, 24)
			s.options.Mode = mode
			state := oneNode()
			state.Server.Identity = "rollcall-controller-7d9f8b6c5-x2x4z_0a1b"
			s.live(state)
			s.Update(frameMsg{State: state, Phase: stream.Live, Since: s.clock, Received: s.clock, FellBehind: 1, Reconnects: 1, Peer: "pod " + strings.Repeat("x", 40)})
			first := func() string { line, _, _ := strings.Cut(s.text(), "\n"); return line }
			for _, want := range []string{"prod-eu", "* live", "data 0s old", "fell behind"} {
				if !strings.Contains(first(), want) {
					t.Errorf("at %d the first line has no %q: %s", width, want, first())
				}
			}
			if !strings.Contains(first(), mode) && !strings.Contains(first(), short) {
				t.Errorf("at %d the first line does not say which controller this is: %s", width, first())
			}
			if width >= usual && !strings.Contains(first(), "x2x4z") {
				t.Errorf("at %d the first line does not say who leads: %s", width, first())
			}
			s.options.Context = strings.Repeat("c", 40)
			s.Update(frameMsg{State: state, Phase: stream.Disconnected, Since: s.clock, Received: s.clock, Retry: s.clock.Add(5 * time.Second), Notice: "the API server does not answer"})
			s.press("p")
			if !strings.Contains(first(), "! disconnected  data 0s old  = paused") || !strings.Contains(first(), mode) && !strings.Contains(first(), short) {
				t.Errorf("at %d: %s", width, first())
			}
			s.shows(t, "\n! the API server does not answer; disconnected 0s ago")
		}
	}
}

// One tick asks for the next, and each of them comes.
func TestTicks(t *testing.T) {
	s := newStage(80, 24)
	_, cmd := s.Update(clockMsg(start))
	for range 2 {
		came := make(chan tea.Msg, 1)
		go func() { came <- cmd() }()
		select {
		case msg := <-came:
			if _, ok := msg.(clockMsg); !ok {
				t.Fatalf("%T came", msg)
			}
			_, cmd = s.Update(msg)
		case <-time.After(time.Minute):
			t.Fatal("the clock stands still")
		}
	}
}

// A node that was released and is held again is held, and what it waits for is shown.
func TestHeldAgain(t *testing.T) {
	for phase, warned := range map[string]bool{"~ held": false, "! held long": true} {
		s := newStage(200, 24)
		state := serverState()
		state.Coming = []*stream.ComingNode{
			{ID: "a", Node: "a", Created: ago(time.Hour), Released: ago(time.Minute), Message: "all are there"},
			{ID: "b", Node: "b", Created: ago(time.Hour), Released: ago(time.Minute), Held: true, Warned: warned, Reason: "MirrorMissing", Missing: []string{"kube-system/etcd-b"}},
		}
		s.live(state)
		s.press("2")
		s.shows(t, "held 1")
		if on := s.cursorOn(); !strings.HasPrefix(on, phase+" ") || !strings.Contains(on, "kube-system/etcd-b") || strings.Contains(on, "+59m") {
			t.Errorf("the first row is %q", on)
		}
		s.shows(t, "Held: MirrorMissing")
		s.press("j")
		if on := s.cursorOn(); !strings.HasPrefix(on, "+ released ") || !strings.Contains(on, "+59m") {
			t.Errorf("the second row is %q", on)
		}
	}
}

// The queue's rates are of the last ten seconds, whatever came before them.
func TestRates(t *testing.T) {
	s := newStage(200, 24)
	rate := func() string { return regexp.MustCompile(`done [0-9.]+/s`).FindString(s.text()) }
	state := func(done int64, speed time.Duration) *stream.State {
		next := serverState()
		next.Time = start.Add(s.clock.Sub(start) * speed)
		next.Queue.Done = done
		return next
	}
	s.press("3")
	s.live(state(1000, 1))
	s.wait(2 * time.Second)
	if rate() != "done 0/s" {
		t.Errorf("at first %q", rate())
	}
	s.wait(10 * time.Minute) // nothing comes, as nothing changes
	s.live(state(1200, 1))
	s.wait(time.Second)
	if rate() != "done 20/s" {
		t.Errorf("200 in the last of ten seconds are %q", rate())
	}
	s.wait(9 * time.Second)
	if rate() != "done 20/s" {
		t.Errorf("200 in the first of ten seconds are %q", rate())
	}
	s.wait(time.Second)
	if rate() != "done 0/s" {
		t.Errorf("after ten seconds %q", rate())
	}
	// Without a connection nothing is known, and what was known stays.
	s.live(state(1300, 1))
	s.wait(time.Second)
	s.Update(frameMsg{State: s.frame.State, Phase: stream.Disconnected, Since: s.clock, Received: s.clock})
	s.wait(time.Minute)
	if rate() != "done 10/s" {
		t.Errorf("without a connection %q", rate())
	}
	s.live(state(9000, 1))
	s.wait(2 * time.Second)
	if rate() != "done 0/s" {
		t.Errorf("with a new connection %q", rate())
	}
	// A recording that is played fast has a clock that is fast.
	s = newStage(200, 24)
	s.press("3")
	for i := range int64(20) {
		s.live(state(i*500, 10))
		s.wait(time.Second)
	}
	if rate() != "done 50/s" {
		t.Errorf("500 in each ten seconds are %q", rate())
	}
}

// A committed key without a known deadline may lose a pod now; its class is on its page and can be looked for.
func TestKeyClasses(t *testing.T) {
	s := newStage(200, 24)
	state := serverState()
	state.Keys = []*stream.Key{
		{ID: "Node rest", Class: "Rest", State: stream.Queued, Since: ago(9 * time.Second)},
		{ID: "Node soon", Class: committed, State: stream.Queued, Since: ago(8 * time.Second), Kill: start.Add(time.Minute)},
		{ID: "Node now", Class: committed, State: stream.Queued, Since: ago(time.Second)},
		{ID: "Node perhaps", Class: pending, State: stream.Queued, Since: ago(7 * time.Second)},
		{ID: "Node over", Class: committed, State: stream.Queued, Since: ago(2 * time.Second), Kill: ago(5 * time.Second)},
		{ID: "Node idle", Class: committed, State: stream.Idle, Since: ago(time.Minute)},
	}
	s.live(state)
	s.press("3", "s", "g")
	for _, want := range []string{"Node over", "Node now", "Node soon", "Node perhaps", "Node rest", "Node idle"} {
		if on := s.cursorOn(); !strings.Contains(on, want) {
			t.Errorf("the cursor is on %q, want %s", on, want)
		}
		s.press("j")
	}
	s.press("/", "p", "e", "n", "d", "i", "n", "g", "enter")
	s.wait(noticeFor) // of where the cursor went
	s.shows(t, "/pending  1 of 1 (6)")
	s.press("esc", "/", "n", "o", "w", "enter", "g")
	if on := s.cursorOn(); !strings.Contains(on, "  now  ") || strings.Count(on, "now") != 3 {
		t.Errorf("next try and next kill are not now: %q", on)
	}
	s.press("i")
	s.shows(t, "class                 Committed")
	s.shows(t, "next possible kill    now, for all that is known")
}
