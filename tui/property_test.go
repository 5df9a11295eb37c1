package tui

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/muesli/termenv"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// hostile are texts that nobody should send.
var hostile = []string{
	"", "-", "web-0", "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x00\x07\x08\x7f", "\u009b31m", "a\nb\r\nc\td",
	"\u202egnp.exe\u202c", "שלום עולם", "مرحبا بالعالم", "日本語のノード", "e\u0301\u0301\u0301\u0301", "👩\u200d👩\u200d👧\u200d👦", "☁\ufe0f", "\U0001f1e9\U0001f1ea",
	"\xff\xfe\xf0\x28", "\u2028\u2029", "Ａ", strings.Repeat("w", 70000), strings.Repeat("界", 4000), strings.Repeat("a ", 4000), "\u200b\u200b", "\ufffd",
}

type chance struct{ *rand.Rand }

func (c chance) text() string {
	if c.IntN(3) > 0 {
		return fmt.Sprintf("node-%d", c.IntN(40))
	}
	return hostile[c.IntN(len(hostile))]
}

func (c chance) time() time.Time {
	if c.IntN(4) == 0 {
		return time.Time{}
	}
	return start.Add(time.Duration(c.Int64N(int64(100*time.Hour))) - 50*time.Hour)
}

func (c chance) number() int { return c.IntN(9) * c.IntN(9) * c.IntN(1000) }

func (c chance) of(texts ...string) string { return texts[c.IntN(len(texts))] }

func (c chance) texts() (texts []string) {
	for range c.IntN(4) {
		texts = append(texts, c.text())
	}
	return texts
}

// state makes a state as no server would.
func (c chance) state() *stream.State {
	s := &stream.State{
		Server: stream.Server{Boot: c.of("b1", "b2"), Identity: c.text(), DryRun: c.IntN(2) == 0}, Time: c.time(),
		Queue: stream.Totals{Depth: c.number(), Running: c.number(), Oldest: c.time(), Added: int64(c.number()), Done: -int64(c.number()), Forgotten: int64(c.number())},
		Pods:  map[string][]*stream.Pod{}, Left: map[string]int{"going": c.number(), "keys": c.number()}, LostDecisions: uint64(c.number()),
	}
	for range c.IntN(60) {
		node := c.text()
		s.Going = append(s.Going, &stream.GoingNode{Name: node, State: c.of(committed, pending, "None", c.text()), Cause: c.text(), Shown: c.text(), Since: c.time(), Deadline: c.time(),
			Stale: c.IntN(2) == 0, CapacityType: c.text(), NodePool: c.text(), WaitsFor: c.text(), WaitsWhy: c.text(), Pods: c.number(), Verdicts: map[string]int{lost: c.number(), c.text(): c.number()}, Collateral: c.number()})
		s.Pods[node] = append(s.Pods[node], &stream.Pod{UID: c.text(), Namespace: c.text(), Name: c.text(), Node: node, On: c.text(), Verdict: c.of(lost, stranded, unsure, c.text()), Reason: c.text(), Flags: c.texts(), Message: c.text()})
		s.Coming = append(s.Coming, &stream.ComingNode{ID: c.text(), Node: c.text(), NodeClaim: c.text(), Created: c.time(), Launched: c.time(), Registered: c.time(), Initialized: c.time(), Released: c.time(),
			Held: c.IntN(2) == 0, Warned: c.IntN(2) == 0, Reason: c.text(), Message: c.text(), Missing: c.texts(), Expected: c.number()})
		s.Keys = append(s.Keys, &stream.Key{ID: c.text(), Kind: c.text(), State: stream.KeyState(c.of("queued", "running", "backing-off", "waiting", "idle", c.text())), Since: c.time(), Until: c.time(), Kill: c.time(), LastError: c.text(), LastDuration: time.Duration(c.number()) * time.Microsecond * 999})
		s.Standing = append(s.Standing, &stream.Standing{Node: c.text(), CapacityType: c.of(spot, "Spot", c.text()), Verdicts: map[string]int{c.text(): c.number()}, Pods: []*stream.StandingPod{{Namespace: c.text(), Name: c.text(), Verdict: c.text(), Message: c.text()}}})
		s.Decisions = append(s.Decisions, &stream.Decision{Sequence: c.Uint64N(50), Time: c.time(), What: c.of("mark", "would clear", c.text()), Object: c.text(), Node: c.text(), Why: c.text()})
	}
	return s
}

// message makes one of the messages that the UI may get.
func (c chance) message(s *stage) tea.Msg {
	switch c.IntN(10) {
	case 0:
		return tea.WindowSizeMsg{Width: 1 + c.IntN(300), Height: 1 + c.IntN(120)}
	case 1, 2:
		f := stream.Frame{State: s.frame.State, Phase: stream.Phase(c.of("connecting", "live", "disconnected", "ended", c.text())), Since: c.time(), Retry: c.time(), Received: s.clock,
			Notice: c.text(), Peer: c.text(), FellBehind: c.IntN(3), Reconnects: c.IntN(3)}
		if c.IntN(3) > 0 {
			f.State = c.state()
		}
		return frameMsg(f)
	case 3:
		s.clock = s.clock.Add(time.Duration(c.IntN(20)) * time.Second)
		return clockMsg(s.clock)
	case 4:
		return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(c.text()), Paste: true}
	}
	group := keymap[c.IntN(len(keymap))]
	b := group.bindings[c.IntN(len(group.bindings))]
	return keyMsg(b.Keys()[c.IntN(len(b.Keys()))])
}

// Whatever comes, the screen has as many lines as the terminal and none is wider, and nothing in it steers the terminal.
func TestScreenAlwaysFits(t *testing.T) {
	for seed := range uint64(40) {
		c := chance{rand.New(rand.NewPCG(seed, 1))}
		s := newStage(1+c.IntN(300), 1+c.IntN(120))
		if seed%2 == 0 {
			s.theme = newTheme(termenv.TrueColor, c.IntN(2) == 0)
		}
		s.live(c.state())
		for step := range 120 {
			msg := c.message(s)
			s.Update(msg)
			screen := s.View()
			fits(t, screen, s.width, s.height)
			if rest := styled.ReplaceAllString(screen, ""); strings.ContainsFunc(rest, steers) {
				t.Errorf("something in the screen steers the terminal: %q", rest)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d, after %T %.200v at %dx%d", seed, step, msg, msg, s.width, s.height)
			}
		}
	}
}

// Below the least size there is one clear line.
func TestTooSmall(t *testing.T) {
	for _, size := range [][2]int{{59, 15}, {60, 14}, {10, 3}, {1, 1}, {300, 14}} {
		s := newStage(size[0], size[1])
		s.live(many())
		fits(t, s.View(), size[0], size[1])
		if want := cut("terminal too small (need 60x15)", size[0], "…"); strings.TrimRight(s.View(), "\n") != want {
			t.Errorf("at %v: %q", size, s.View())
		}
	}
}

// A screen is drawn once for each change, however often it is asked for.
func TestViewIsDrawnOnce(t *testing.T) {
	s := newStage(120, 40)
	s.live(large())
	first := s.View()
	if allocs := testing.AllocsPerRun(100, func() { _ = s.View() }); allocs > 0 {
		t.Errorf("a screen that did not change costs %v allocations", allocs)
	}
	if s.stale || s.View() != first {
		t.Error("the screen changed by itself")
	}
}
