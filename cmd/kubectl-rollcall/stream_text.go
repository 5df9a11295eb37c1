package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// A narrator tells in words what changed from one frame to the next.
type narrator struct {
	out     io.Writer
	boot    string
	decided uint64            // sequence of the last decision that was told
	lost    uint64            // decisions that never came, told so far
	states  map[string]string // of the nodes that were told of
}

// tell writes what is new; all, where the controller is another.
func (n *narrator) tell(frame stream.Frame) error {
	state := frame.State
	var b bytes.Buffer
	if n.boot != state.Server.Boot {
		n.boot, n.decided, n.lost, n.states = state.Server.Boot, 0, 0, map[string]string{}
		fmt.Fprintf(&b, "%s %s leads: %s\n", clock(state.Time), cmp.Or(frame.Peer, state.Server.Identity), summary(state))
	}
	seen := map[string]string{}
	for _, node := range state.Going {
		seen[node.Name] = going(node)
	}
	for _, node := range state.Coming {
		seen["coming "+node.ID] = coming(node)
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if now := seen[name]; n.states[name] != now {
			fmt.Fprintf(&b, "%s %s\n", clock(state.Time), now)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.states)) {
		if _, still := seen[name]; !still && !strings.HasPrefix(name, "coming ") {
			fmt.Fprintf(&b, "%s node %s is not going any more\n", clock(state.Time), name)
		}
	}
	n.states = seen
	if lost := state.LostDecisions - n.lost; lost > 0 {
		fmt.Fprintf(&b, "%s %d decisions were made that did not come through\n", clock(state.Time), lost)
		n.lost = state.LostDecisions
	}
	for _, d := range state.Decisions {
		if d.Sequence > n.decided {
			fmt.Fprintf(&b, "%s %s\n", clock(d.Time), decision(d))
			n.decided = d.Sequence
		}
	}
	_, err := n.out.Write(b.Bytes())
	return err
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }

// summary is one line about everything.
func summary(s *stream.State) string {
	text := fmt.Sprintf("%s going, %s coming, queue %d (%d running, %d backing off)",
		nodes(len(s.Going)), nodes(len(s.Coming)), s.Queue.Depth, s.Queue.Running, s.Queue.BackingOff)
	if s.Server.DryRun {
		text += ", dry run"
	}
	return text
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// going is one line about a node that goes.
func going(n *stream.GoingNode) string {
	text := fmt.Sprintf("node %s %s (%s)", n.Name, n.State, cmp.Or(n.Shown, n.Cause))
	if n.Stale {
		text += " stale"
	}
	if !n.Deadline.IsZero() {
		text += " until " + clock(n.Deadline)
	}
	counts := make([]string, 0, len(n.Verdicts))
	for _, verdict := range slices.Sorted(maps.Keys(n.Verdicts)) {
		counts = append(counts, fmt.Sprintf("%s %d", verdict, n.Verdicts[verdict]))
	}
	if n.Collateral > 0 {
		counts = append(counts, fmt.Sprintf("elsewhere %d", n.Collateral))
	}
	if len(counts) > 0 {
		text += ": " + strings.Join(counts, ", ")
	}
	return text
}

// coming is one line about a node that comes.
func coming(n *stream.ComingNode) string {
	text := "node " + cmp.Or(n.Node, "of "+n.NodeClaim)
	switch {
	case n.Held && len(n.Missing) > 0:
		return text + " is held, waiting for " + strings.Join(n.Missing, ", ")
	case n.Held:
		return text + " is held: " + cmp.Or(n.Reason, "nothing is known of its static pods")
	case n.WaitsFor != "":
		return text + " comes, waiting for " + n.WaitsFor
	}
	return text + " has come"
}

func decision(d *stream.Decision) string {
	text := d.What + " " + d.Object
	for _, part := range []string{d.Verdict, d.Reason} {
		if part != "" {
			text += " " + part
		}
	}
	if d.Node != "" && d.Node != d.Object {
		text += ", node " + d.Node
	}
	if d.Cause != "" {
		text += " (" + d.Cause + ")"
	}
	if d.Why != "" {
		text += ": " + d.Why
	}
	return text
}
