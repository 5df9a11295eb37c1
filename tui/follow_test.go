package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// without returns the state as a client would make it: new slices where rows went.
func without(s *stream.State, names ...string) *stream.State {
	next := *s
	next.Going = slices.DeleteFunc(slices.Clone(s.Going), func(n *stream.GoingNode) bool { return slices.Contains(names, n.Name) })
	return &next
}

func TestCursorStaysOnItsObject(t *testing.T) {
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("j", "j", "j")
	// 1. A row before it goes, another comes.
	next := without(state, "n01")
	next.Going = append([]*stream.GoingNode{{Name: "urgent", State: committed}}, next.Going...)
	s.live(next)
	if on := s.cursorOn(); !strings.Contains(on, "n03") {
		t.Errorf("the cursor is on %q", on)
	}
	// 2. Its own row changes, and with it the order.
	next = without(next, "n03")
	next.Going = append(next.Going, &stream.GoingNode{Name: "n03", State: pending})
	s.live(next)
	if on := s.cursorOn(); !strings.Contains(on, "~ pending    n03") {
		t.Errorf("the cursor is on %q", on)
	}
	// 3. It goes: what comes after it at its row has the cursor, and a notice says so.
	s.press("g", "j", "j")
	s.live(without(next, "n02"))
	if on := s.cursorOn(); !strings.Contains(on, "n04") {
		t.Errorf("the cursor is on %q", on)
	}
	s.shows(t, "n02 is no longer here; the cursor is on n04")
	// 4. The notice goes with time.
	s.wait(11 * time.Second)
	if strings.Contains(s.text(), "no longer here") {
		t.Error("a notice stays for ever")
	}
	// 5. All go.
	s.live(serverState())
	s.shows(t, "n04 is no longer here")
	s.wait(11 * time.Second)
	s.shows(t, "no node goes")
	if on := s.cursorOn(); on != "" {
		t.Errorf("the cursor is on %q where there is nothing", on)
	}
}

// A view that is not shown follows its object when it is shown again.
func TestCursorFollowsBehindAnotherTab(t *testing.T) {
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("j", "j", "2")
	s.live(without(state, "n00"))
	s.press("1")
	if on := s.cursorOn(); !strings.Contains(on, "n02") {
		t.Errorf("the cursor is on %q", on)
	}
}

func TestPageClosesWithItsObject(t *testing.T) {
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("i")
	s.live(without(state, "n05"))
	s.shows(t, "  node n00")
	s.live(without(state, "n00"))
	s.shows(t, "» ! committed  n01")
	s.shows(t, "n00 is no longer here; the cursor is on n01")
}

func TestOpenedNodeThatGoes(t *testing.T) {
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("enter", "j")
	next := without(state, "n00")
	next.Pods = map[string][]*stream.Pod{}
	s.live(next)
	s.shows(t, "shop/p-n01 is no longer here")
	s.wait(11 * time.Second)
	s.shows(t, "nothing is known of pods of n00")
	s.press("esc")
	s.shows(t, "» ! committed  n01")
}

// The cursor never goes to another object without a word, and what is read stays as long as it is there.
func TestRowLeavesTheFilter(t *testing.T) {
	turned := func(state *stream.State, id string, to stream.KeyState) *stream.State {
		next := *state
		next.Keys = slices.Clone(state.Keys)
		i := slices.IndexFunc(next.Keys, func(k *stream.Key) bool { return k.ID == id })
		next.Keys[i] = &stream.Key{ID: id, State: to, Since: start}
		return &next
	}
	const notice = "node n00 does not match the filter any more; the cursor is on node n01"
	for name, tc := range map[string]struct {
		page  []string // keys that open one
		after []string // keys that leave it
	}{
		"no page":        {nil, nil},
		"back":           {[]string{"i"}, []string{"esc"}},
		"another view":   {[]string{"enter"}, []string{"tab", "shift+tab"}},
		"help on a page": {[]string{"enter"}, []string{"?", "esc"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(100, 24)
			state := many()
			s.live(state)
			s.press("3", "/", "q", "u", "e", "u", "e", "d", "enter")
			s.press(tc.page...)
			s.live(turned(state, "node n00", stream.Running))
			if tc.page != nil {
				s.shows(t, "  key node n00")
				s.shows(t, "running")
			}
			s.press(tc.after...)
			s.shows(t, "» . queued       node n01")
			s.shows(t, notice)
		})
	}
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("3", "/", "0", "0", "enter")
	s.live(turned(state, "node n00", stream.Running))
	s.press("/", "ctrl+u", "r", "u", "n", "enter")
	s.live(state)
	s.shows(t, "node n00 does not match the filter any more")
	s.live(turned(state, "node n00", stream.Running))
	s.shows(t, "» * running      node n00")
}

// A page in the log stays while decisions come.
func TestPageInTheLogStays(t *testing.T) {
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("4", "enter")
	for i := range 3 {
		next := *state
		next.Decisions = append(slices.Clone(state.Decisions), &stream.Decision{Sequence: uint64(100 + i), Time: start.Add(time.Second), What: "lost", Object: "shop/new"})
		state = &next
		s.live(state)
		s.shows(t, "  decision on shop/p-n29")
	}
	s.press("esc")
	if on := s.cursorOn(); !strings.Contains(on, "shop/p-n29") {
		t.Errorf("the cursor is on %q", on)
	}
	s.press("g")
	s.shows(t, "1 of 33")
}

// Where another leader does not know the object yet, the cursor goes to another one and comes back: both are said, after
// who leads. A person who opened what it went to stays there.
func TestCursorAtAnotherLeader(t *testing.T) {
	for name, reads := range map[string]bool{"waits": false, "reads": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(120, 24)
			s.live(many())
			s.press("j", "j")
			s.Update(frameMsg{State: s.frame.State, Phase: stream.Disconnected, Since: s.clock, Received: s.clock})
			early, late := many(), many()
			early.Server.Boot, late.Server.Boot = "b2", "b2"
			early.Going = early.Going[:1]
			s.live(early)
			s.shows(t, "leads now; n02 is not known to this leader yet; the cursor is on n00")
			if reads {
				s.press("i")
				s.live(late)
				s.shows(t, "  node n00")
				return
			}
			s.live(late)
			s.shows(t, "leads now; n02 is there again, and the cursor on it")
		})
	}
}

// On the newest line of the log the cursor stays on the newest; further down on its line.
func TestLogFollows(t *testing.T) {
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("4")
	more := func(object string) {
		next := *state
		next.Decisions = append(slices.Clone(state.Decisions), &stream.Decision{Sequence: uint64(len(state.Decisions) + 1), Time: start, What: "lost", Object: object})
		state = &next
		s.live(state)
	}
	more("shop/new")
	if on := s.cursorOn(); !strings.Contains(on, "shop/new") {
		t.Errorf("the cursor is on %q", on)
	}
	s.press("j")
	more("shop/newer")
	if on := s.cursorOn(); !strings.Contains(on, "shop/p-n29") {
		t.Errorf("the cursor is on %q", on)
	}
}

func TestPause(t *testing.T) {
	s := newStage(80, 24)
	state := many()
	s.live(state)
	s.press("p")
	s.wait(3 * time.Second)
	s.live(without(state, "n00"))
	s.shows(t, "» ! committed  n00")
	s.shows(t, "data 3s old  = paused")
	s.press("p")
	s.shows(t, "» ! committed  n01")
	s.shows(t, "data 0s old")
}

// The countdown goes by the controller's clock, whatever this machine's says.
func TestClocks(t *testing.T) {
	s := newStage(80, 24)
	s.clock = start.Add(-7 * time.Hour)
	state := many()
	s.live(state)
	s.shows(t, "n00                              in 1m00s")
	s.wait(61 * time.Second)
	s.shows(t, "n00                              1s ago")
}

func TestConnection(t *testing.T) {
	s := newStage(120, 24)
	s.shows(t, "~ connecting for 0s")
	s.Update(frameMsg{Phase: stream.Disconnected, Since: s.clock, Retry: s.clock.Add(2 * time.Second), Notice: "no controller leads: there is no Lease"})
	s.shows(t, "! disconnected 0s ago, next try in 2s: no controller leads: there is no Lease")
	state := many()
	s.live(state)
	s.shows(t, "* live  data 0s old")
	s.press("j", "j")
	s.Update(frameMsg{State: state, Phase: stream.Disconnected, Since: s.clock, Received: s.clock, Notice: "the stream broke"})
	s.wait(3 * time.Second)
	s.shows(t, "! the stream broke; disconnected 3s ago")
	// Another leader, with rows of its own making.
	next := many()
	next.Server.Boot, next.Server.Identity = "b2", "rollcall-controller-other_1"
	s.live(next)
	s.shows(t, "connected again: rollcall-controller-other leads now")
	if on := s.cursorOn(); !strings.Contains(on, "n02") {
		t.Errorf("the cursor is on %q", on)
	}
	// A leader that knows only some of it at first: the cursor comes back to its object, unless a person moved it.
	for _, moved := range []bool{false, true} {
		s.press("g", "j", "j")
		early := many()
		early.Server.Boot = "b3" + yes(moved)
		early.Going = early.Going[:1]
		s.live(early)
		if on := s.cursorOn(); !strings.Contains(on, "n00") || strings.Contains(s.text(), "no longer here") {
			t.Errorf("the cursor is on %q:\n%s", on, s.text())
		}
		want := "n02"
		if moved {
			s.press("k")
			want = "n00"
		}
		late := many()
		late.Server.Boot = early.Server.Boot
		s.live(late)
		if on := s.cursorOn(); !strings.Contains(on, want) {
			t.Errorf("the cursor is on %q, want %s", on, want)
		}
	}
	s.Update(frameMsg{State: next, Phase: stream.Ended, Since: s.clock, Received: s.clock, Notice: "the recording has no more"})
	s.shows(t, ". the recording has ended")
	_, cmd := s.Update(endMsg{})
	if cmd != nil {
		t.Error("after the last frame another is waited for")
	}
}
