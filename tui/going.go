package tui

import (
	"cmp"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// The verdicts (DESIGN.md section 3) that a person acts on.
const (
	lost     = "Lost"
	stranded = "Stranded"
	unsure   = "Unsure"
)

// The states of a node that goes (DESIGN.md section 2).
const (
	committed = "Committed"
	pending   = "Pending"
)

func newGoing() *listing[*stream.GoingNode] {
	return newListing(spec[*stream.GoingNode]{
		noun:  "node",
		id:    func(n *stream.GoingNode) string { return n.Name },
		name:  func(n *stream.GoingNode) string { return n.Name },
		rows:  func(s *stream.State) []*stream.GoingNode { return s.Going },
		empty: "no node goes",
		text: func(n *stream.GoingNode) string {
			return lower(n.Name, n.State, n.Cause, n.Shown, n.NodePool, n.NodeClaim, n.CapacityType, n.WaitsFor)
		},
		orders: []order[*stream.GoingNode]{
			{"deadline", byKill},
			{"lost", func(a, b *stream.GoingNode) int { return cmp.Compare(hurt(b), hurt(a)) }},
			{"name", func(a, b *stream.GoingNode) int { return cmp.Compare(a.Name, b.Name) }},
			{"newest", func(a, b *stream.GoingNode) int { return b.Since.Compare(a.Since) }},
		},
		columns: goingColumns(),
		detail:  goingDetail,
		fields:  goingFields,
	})
}

// byKill is the queue's order, by the next possible kill: committed without a known deadline counts as now, then come
// deadlines, then what may be undone, then stale signals (DESIGN.md section 7).
func byKill(a, b *stream.GoingNode) int {
	class := func(n *stream.GoingNode) int {
		switch {
		case n.State == committed && n.Deadline.IsZero():
			return 0
		case n.State == committed:
			return 1
		case n.State == pending:
			return 2
		}
		return 3
	}
	return cmp.Or(cmp.Compare(class(a), class(b)), a.Deadline.Compare(b.Deadline), a.Since.Compare(b.Since))
}

// hurt counts the pods that will not come back.
func hurt(n *stream.GoingNode) int { return n.Verdicts[lost] + n.Verdicts[stranded] + n.Collateral }

func goingColumns() []column[*stream.GoingNode] {
	type node = *stream.GoingNode
	return []column[node]{
		{"STATE", fixed(narrow, 11), false, func(n node, _ moment) cell { return goingState(n) }},
		{"NODE", growing(narrow, 16, 44, 4), false, func(n node, _ moment) cell { return cell{n.Name, plain} }},
		{"DEADLINE", fixed(narrow, 10), false, func(n node, m moment) cell { return deadlineCell(n.Deadline, m.now) }},
		{"LOST", fixed(narrow, 4), true, func(n node, _ moment) cell { return counted(n.Verdicts[lost], alarm) }},
		{"STRANDED", fixed(usual, 8), true, func(n node, _ moment) cell { return counted(n.Verdicts[stranded], watch) }},
		{"PODS", fixed(narrow, 4), true, func(n node, _ moment) cell { return cell{number(n.Pods), plain} }},
		{"MARKED", fixed(roomy, 6), true, func(n node, _ moment) cell { return counted(n.Marked, plain) }},
		{"CAUSE", growing(roomy, 20, 46, 1), false, func(n node, _ moment) cell { return cell{causeOf(n), plain} }},
		{"WAITS FOR", growing(ample, 14, 30, 1), false, func(n node, _ moment) cell { return cell{dash(n.WaitsFor), plain} }},
		{"ELSEWHERE", fixed(ample, 9), true, func(n node, _ moment) cell { return counted(n.Collateral, alarm) }},
		{"UNSURE", fixed(ample, 6), true, func(n node, _ moment) cell { return counted(n.Verdicts[unsure], watch) }},
		{"SINCE", fixed(ample, 7), false, func(n node, m moment) cell { return cell{age(m.now, n.Since), quiet} }},
		{"CAPACITY", growing(ample, 9, 12, 1), false, func(n node, _ moment) cell { return cell{dash(n.CapacityType), plain} }},
		{"NODEPOOL", growing(ample, 10, 20, 1), false, func(n node, _ moment) cell { return cell{dash(n.NodePool), plain} }},
	}
}

func goingState(n *stream.GoingNode) cell {
	switch {
	case n.Stale && n.State != committed && n.State != pending:
		return cell{"? stale", quiet}
	case n.State == committed:
		return cell{"! committed", alarm}
	case n.State == pending:
		return cell{"~ pending", watch}
	}
	return cell{"? " + n.State, plain}
}

func causeOf(n *stream.GoingNode) string { return cmp.Or(n.Shown, n.Cause, "-") }

func deadlineCell(deadline, now time.Time) cell {
	c := cell{countdown(now, deadline), watch}
	switch {
	case deadline.IsZero():
		c.as = quiet
	case deadline.Sub(now) < time.Minute:
		c.as = alarm
	}
	return c
}

func goingDetail(n *stream.GoingNode, m moment) string {
	since := age(m.now, n.Since)
	if n.SinceEstimated {
		since = "at most " + since
	}
	text := causeOf(n) + " for " + since
	if n.Deadline.IsZero() {
		text += "; no deadline known: pods may be killed at any time"
	}
	if n.State == pending {
		text += "; it can still be undone"
	}
	if n.WaitsFor != "" {
		text += "; waits for " + strings.TrimRight(n.WaitsFor+": "+n.WaitsWhy, ": ")
	}
	if n.Stale {
		text += "; a ToBeDeletedByClusterAutoscaler taint is stale and counts for nothing"
	}
	return text
}

func goingFields(n *stream.GoingNode, m moment) []field {
	return []field{
		{"state", n.State}, {"cause", causeOf(n)}, {"signal", n.Cause}, {"since", stamp(m.now, n.Since)},
		{"since is estimated", yes(n.SinceEstimated)}, {"deadline", stamp(m.now, n.Deadline)}, {"stale taint", yes(n.Stale)},
		{"capacity type", n.CapacityType}, {"NodePool", n.NodePool}, {"NodeClaim", n.NodeClaim},
		{"waits for", n.WaitsFor}, {"because", n.WaitsWhy},
		{"pods", number(n.Pods)}, {"verdicts", verdictCounts(n.Verdicts)}, {"pods elsewhere", number(n.Collateral)}, {"marked", number(n.Marked)},
	}
}
