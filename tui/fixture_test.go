package tui

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/muesli/termenv"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// start is when the tests' clocks begin, the controller's and this machine's.
var start = time.Date(2026, 12, 1, 19, 0, 0, 0, time.UTC)

// A stage is a model that a test drives by hand.
type stage struct {
	*model
	clock time.Time
}

func newStage(width, height int) *stage {
	s := &stage{clock: start}
	s.model = newModel(Options{
		Context: "prod-eu", Mode: "the cluster's controller", Now: func() time.Time { return s.clock },
	}, newTheme(termenv.Ascii, false))
	s.out, s.shell = io.Discard, true
	s.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

// live has a state come.
func (s *stage) live(state *stream.State) {
	s.Update(frameMsg{State: state, Phase: stream.Live, Since: start, Received: s.clock, Peer: "pod rollcall-system/rollcall-controller-7d9f"})
}

// wait lets time pass, with a tick for each second.
func (s *stage) wait(d time.Duration) {
	for range int(d / time.Second) {
		s.clock = s.clock.Add(time.Second)
		s.Update(clockMsg(s.clock))
	}
}

// press presses keys, by bubbletea's names of them, and does what they ask for.
func (s *stage) press(keys ...string) {
	for _, name := range keys {
		_, cmd := s.Update(keyMsg(name))
		if cmd == nil {
			continue
		}
		if msg := cmd(); msg != nil {
			s.Update(msg)
		}
	}
}

// named are the keys that are no runes.
var named = map[string]tea.KeyType{
	"up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown,
	"home": tea.KeyHome, "end": tea.KeyEnd, "enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "shift+tab": tea.KeyShiftTab,
	"backspace": tea.KeyBackspace, "ctrl+c": tea.KeyCtrlC, "ctrl+u": tea.KeyCtrlU, "ctrl+b": tea.KeyCtrlB, "ctrl+f": tea.KeyCtrlF, "ctrl+z": tea.KeyCtrlZ,
}

func keyMsg(name string) tea.KeyMsg {
	if kind, ok := named[name]; ok {
		return tea.KeyMsg{Type: kind}
	}
	if name == " " {
		return tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}}
	}
	return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(name)}
}

// text returns the screen without the blanks at the ends of its lines.
func (s *stage) text() string {
	lines := strings.Split(s.View(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// shows fails unless the screen has the text.
func (s *stage) shows(t *testing.T, want string) {
	t.Helper()
	if !strings.Contains(s.text(), want) {
		t.Errorf("the screen does not show %q:\n%s", want, s.text())
	}
}

// cursorOn returns the line of the cursor.
func (s *stage) cursorOn() string {
	for line := range strings.Lines(s.text()) {
		if strings.HasPrefix(line, s.mark) {
			return strings.TrimSpace(strings.TrimPrefix(line, s.mark))
		}
	}
	return ""
}

func ago(d time.Duration) time.Time { return start.Add(-d) }

func serverState() *stream.State {
	return &stream.State{
		Server: stream.Server{Version: 1, Boot: "b1", Identity: "rollcall-controller-7d9f_0a1b", Program: "v1.0.0", Started: ago(time.Hour), HeartbeatSeconds: 15},
		Time:   start, Sequence: 7,
	}
}

// oneNode is a small cluster on a bad day: one row of each kind, or two.
func oneNode() *stream.State {
	s := serverState()
	s.Queue = stream.Totals{Depth: 2, Running: 1, BackingOff: 1, Waiting: 3, Known: 8, Oldest: ago(2 * time.Second), Added: 120, Deduped: 40, Started: 80, Done: 79, Failed: 3, Workers: 4}
	s.Going = []*stream.GoingNode{{
		Name: "spot-1", State: committed, Cause: "aws-node-termination-handler/spot-itn", Shown: "SpotInterrupted", Since: ago(20 * time.Second),
		Deadline: start.Add(100 * time.Second), CapacityType: spot, NodePool: "default", NodeClaim: "default-x7k2p", WaitsFor: "Drained",
		WaitsWhy: "2 pods are waiting to be evicted", Pods: 5, Verdicts: map[string]int{lost: 2, stranded: 1, "Returns": 1, "GoesWithNode": 1}, Collateral: 1, Marked: 2,
	}}
	s.Pods = map[string][]*stream.Pod{"spot-1": {
		{UID: "u1", Namespace: "shop", Name: "notebook", Node: "spot-1", Verdict: lost, Reason: "NoController", Certainty: "Certain", Flags: []string{"EmptyDirData"}, Marked: true,
			Message: "Nothing owns it, so nothing makes it again: give it a controller (a Deployment or a Job) or save what it does"},
		{UID: "u2", Namespace: "shop", Name: "load-test", Node: "spot-1", Verdict: lost, Reason: "OwnerGone", Certainty: "Assumed", Marked: true, Message: "Its controller Tester load does not exist any more"},
		{UID: "u3", Namespace: "shop", Name: "queue-0", Node: "spot-1", Verdict: stranded, Reason: "NoPlace", Certainty: "Certain", Flags: []string{"LocalVolume", "DoNotDisrupt"}, Message: "Its volume is on this node alone"},
		{UID: "u4", Namespace: "shop", Name: "web-57d9664db9-dsnmj", Node: "spot-1", Verdict: "Returns", Reason: "ReplicaSet", Certainty: "Certain", Placement: "FitsNow", Message: "fits on stable-1"},
		{UID: "u5", Namespace: "shop", Name: "logs-m2gzf", Node: "spot-1", Verdict: "GoesWithNode", Reason: "DaemonSet", Certainty: "Certain"},
		{UID: "u6", Namespace: "batch", Name: "import-2", Node: "spot-1", On: "stable-1", Verdict: lost, Reason: "JobWillNotRetry", Certainty: "Certain", Message: "Its Job fails with the pods of spot-1"},
	}}
	s.Coming = []*stream.ComingNode{
		{ID: "c1", Node: "stable-7", NodeClaim: "default-9qk4w", NodePool: "default", CapacityType: "on-demand", Created: ago(90 * time.Second), Launched: ago(80 * time.Second),
			Registered: ago(30 * time.Second), Held: true, Status: "False", Reason: "MirrorMissing", Expected: 2, Missing: []string{"kube-system/kube-proxy-stable-7"},
			Message: "kube-system/kube-proxy-stable-7 has no mirror pod yet"},
		{ID: "c2", NodeClaim: "default-zz9pl", NodePool: "default", CapacityType: spot, Created: ago(12 * time.Second), WaitsFor: "Launched", WaitsWhy: "no capacity"},
	}
	s.Keys = []*stream.Key{
		{ID: "node spot-1", Kind: "node", State: stream.Running, Since: ago(time.Second), Class: committed, Kill: start.Add(100 * time.Second), Added: 14, DedupedQueued: 3, DedupedRun: 2, Started: 9, LastDuration: 3 * time.Millisecond},
		{ID: "node stable-7", Kind: "node", State: stream.BackingOff, Since: ago(4 * time.Second), Until: start.Add(3 * time.Second), Added: 5, Started: 4, Failed: 3, Failures: 3,
			LastError: "patching the status of node stable-7: the server is currently unable to handle the request", LastDuration: 12 * time.Millisecond},
	}
	s.Standing = []*stream.Standing{{Node: "spot-2", CapacityType: spot, Verdicts: map[string]int{lost: 1, unsure: 1, "Returns": 12}, Pods: []*stream.StandingPod{
		{Namespace: "shop", Name: "report", Verdict: lost, Reason: "JobWillNotRetry", Message: "Its Job has used up its backoffLimit"},
		{Namespace: "shop", Name: "odd", Verdict: unsure, Reason: "OwnerIsNoController", Message: "Its owner is no controller"},
	}}}
	s.Decisions = []*stream.Decision{
		{Sequence: 1, Time: ago(20 * time.Second), What: "mark", Object: "shop/notebook", Node: "spot-1", Verdict: lost, Reason: "NoController", Cause: "aws-node-termination-handler/spot-itn"},
		{Sequence: 2, Time: ago(19 * time.Second), What: "mark", Object: "shop/load-test", Node: "spot-1", Verdict: lost, Reason: "OwnerGone", Cause: "aws-node-termination-handler/spot-itn"},
		{Sequence: 3, Time: ago(8 * time.Second), What: "held", Object: "stable-7", Node: "stable-7", Reason: "MirrorMissing", Why: "kube-system/kube-proxy-stable-7 has no mirror pod yet"},
		{Sequence: 4, Time: ago(3 * time.Second), What: "clear", Object: "shop/other", Node: "spot-3", Why: "the node is healthy again"},
	}
	return s
}

// large is a cluster of 5,000 nodes, of which 100 go, with 20,000 pods on those, and a key for each node.
func large() *stream.State {
	s := serverState()
	s.Pods = map[string][]*stream.Pod{}
	for i := range 100 {
		name := fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/16, i*7%250)
		n := &stream.GoingNode{Name: name, State: committed, Cause: "karpenter.sh/disrupted", Since: ago(time.Duration(i) * time.Second), Pods: 200, Verdicts: map[string]int{lost: i % 5, "Returns": 200 - i%5}, Marked: i % 5}
		switch i % 3 {
		case 0:
			n.Deadline = start.Add(time.Duration(30+i*13%300) * time.Second)
		case 1:
			n.State = pending
		}
		s.Going = append(s.Going, n)
		for j := range 200 {
			p := &stream.Pod{UID: fmt.Sprintf("u-%d-%d", i, j), Namespace: fmt.Sprintf("team-%d", j%17), Name: fmt.Sprintf("web-%d-%d", i, j), Node: name, Verdict: "Returns", Reason: "ReplicaSet", Certainty: "Certain", Placement: "FitsNow"}
			if j < i%5 {
				p.Verdict, p.Reason, p.Marked = lost, "NoController", true
			}
			s.Pods[name] = append(s.Pods[name], p)
		}
	}
	for i := range 5000 {
		k := &stream.Key{ID: fmt.Sprintf("node node-%04d", i), Kind: "node", State: stream.Idle, Since: ago(time.Duration(i) * time.Second), Added: int64(i % 40), Started: int64(i % 30)}
		switch {
		case i%1200 == 0:
			k.State = stream.Running
		case i%60 == 0:
			k.State = stream.Queued
		case i%97 == 0:
			k.State, k.Until = stream.Waiting, start.Add(time.Duration(i)*time.Second)
		}
		s.Keys = append(s.Keys, k)
		s.Standing = append(s.Standing, &stream.Standing{Node: fmt.Sprintf("node-%04d", i), CapacityType: []string{spot, "on-demand"}[i%2], Verdicts: map[string]int{lost: i % 3, "Returns": 20},
			Pods: []*stream.StandingPod{{Namespace: "shop", Name: fmt.Sprintf("bare-%d", i), Verdict: lost, Reason: "NoController"}}})
	}
	for i := range 40 {
		s.Coming = append(s.Coming, &stream.ComingNode{ID: fmt.Sprintf("c%d", i), Node: fmt.Sprintf("new-%02d", i), NodeClaim: fmt.Sprintf("default-%02d", i), Created: ago(time.Duration(i) * 3 * time.Second), Launched: ago(time.Duration(i) * 2 * time.Second), Held: i%2 == 0, Reason: "KubeletNotReady"})
	}
	for i := range 500 {
		s.Decisions = append(s.Decisions, &stream.Decision{Sequence: uint64(i + 1), Time: ago(time.Duration(500-i) * time.Second), What: []string{"mark", "clear", "lost", "release"}[i%4], Object: fmt.Sprintf("shop/pod-%d", i), Node: fmt.Sprintf("node-%04d", i)})
	}
	s.Queue = stream.Totals{Depth: 80, Running: 4, Waiting: 50, Known: 5000, Oldest: ago(time.Second), Added: 90000, Deduped: 20000, Started: 60000, Done: 60000, Workers: 4}
	s.Left = map[string]int{"standing": 312}
	return s
}
