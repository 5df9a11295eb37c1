package tui

import (
	"cmp"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

func newComing() *listing[*stream.ComingNode] {
	return newListing(spec[*stream.ComingNode]{
		noun:  "node",
		id:    func(n *stream.ComingNode) string { return n.ID },
		name:  comingName,
		rows:  func(s *stream.State) []*stream.ComingNode { return s.Coming },
		empty: "no node is on its way",
		text: func(n *stream.ComingNode) string {
			return lower(n.Node, n.NodeClaim, n.NodePool, n.CapacityType, comingPhase(n).text, n.Reason, strings.Join(n.Missing, " "))
		},
		orders: []order[*stream.ComingNode]{
			{"trouble", func(a, b *stream.ComingNode) int {
				return cmp.Or(cmp.Compare(comingRank(a), comingRank(b)), a.Created.Compare(b.Created))
			}},
			{"oldest", func(a, b *stream.ComingNode) int { return a.Created.Compare(b.Created) }},
			{"name", func(a, b *stream.ComingNode) int { return cmp.Compare(comingName(a), comingName(b)) }},
		},
		columns: comingColumns(),
		detail:  comingDetail,
		fields:  comingFields,
	})
}

func comingName(n *stream.ComingNode) string { return cmp.Or(n.Node, n.NodeClaim, n.ID) }

// comingRank puts first what a person can mend.
func comingRank(n *stream.ComingNode) int {
	switch {
	case n.Held && n.Warned:
		return 0
	case n.Held:
		return 1
	case n.Released.IsZero():
		return 2
	}
	return 3
}

// comingPhase is how far a node has come, with Karpenter's own words where they are its conditions.
func comingPhase(n *stream.ComingNode) cell {
	switch { // held first: a node that was released may be held again
	case n.Held && n.Warned:
		return cell{"! held long", alarm}
	case n.Held:
		return cell{"~ held", watch}
	case !n.Released.IsZero():
		return cell{"+ released", good}
	case !n.Initialized.IsZero():
		return cell{"+ Initialized", good}
	case !n.Registered.IsZero():
		return cell{". Registered", plain}
	case !n.Launched.IsZero():
		return cell{". Launched", plain}
	case n.NodeClaim != "":
		return cell{"~ launching", watch}
	}
	return cell{". new", plain}
}

func comingColumns() []column[*stream.ComingNode] {
	type node = *stream.ComingNode
	step := func(at func(node) time.Time) func(node, moment) cell {
		return func(n node, _ moment) cell {
			if at(n).IsZero() {
				return cell{"-", quiet}
			}
			return cell{"+" + span(at(n).Sub(n.Created)), plain}
		}
	}
	released := func(n node) time.Time {
		if n.Held { // again
			return time.Time{}
		}
		return n.Released
	}
	return []column[node]{
		{"PHASE", fixed(narrow, 13), false, func(n node, _ moment) cell { return comingPhase(n) }},
		{"NODE", growing(narrow, 14, 44, 1), false, func(n node, _ moment) cell { return cell{comingName(n), plain} }},
		{"AGE", fixed(narrow, 6), false, func(n node, m moment) cell { return cell{age(m.now, n.Created), plain} }},
		{"MISSING", growing(narrow, 14, 44, 1), false, func(n node, _ moment) cell { return missingCell(n) }},
		{"STATIC", fixed(usual, 6), true, func(n node, _ moment) cell { return counted(n.Expected, plain) }},
		{"LAUNCHED", fixed(roomy, 8), false, step(func(n node) time.Time { return n.Launched })},
		{"REGISTERED", fixed(roomy, 10), false, step(func(n node) time.Time { return n.Registered })},
		{"INITIALIZED", fixed(roomy, 11), false, step(func(n node) time.Time { return n.Initialized })},
		{"RELEASED", fixed(ample, 8), false, step(released)},
		{"WAITS FOR", growing(ample, 12, 30, 1), false, func(n node, _ moment) cell { return cell{dash(n.WaitsFor), plain} }},
		{"CAPACITY", growing(ample, 9, 12, 1), false, func(n node, _ moment) cell { return cell{dash(n.CapacityType), plain} }},
		{"NODEPOOL", growing(ample, 10, 20, 1), false, func(n node, _ moment) cell { return cell{dash(n.NodePool), plain} }},
	}
}

// missingCell names the first static pod that has no mirror, or else what Karpenter waits for.
func missingCell(n *stream.ComingNode) cell {
	switch {
	case len(n.Missing) == 1:
		return cell{n.Missing[0], watch}
	case len(n.Missing) > 1:
		return cell{"+" + number(len(n.Missing)-1) + " " + n.Missing[0], watch}
	case n.Held && n.Reason != "":
		return cell{n.Reason, watch}
	}
	return cell{dash(n.WaitsFor), quiet}
}

func comingDetail(n *stream.ComingNode, m moment) string {
	switch {
	case n.Held:
		return strings.TrimRight("Held: "+n.Reason+". "+n.Message, ". ")
	case !n.Released.IsZero():
		return "Released " + age(m.now, n.Released) + " ago, " + span(n.Released.Sub(n.Created)) + " after it was made. " + n.Message
	case n.WaitsFor != "":
		return "Waits for " + strings.TrimRight(n.WaitsFor+": "+n.WaitsWhy, ": ")
	}
	return n.Message
}

func comingFields(n *stream.ComingNode, m moment) []field {
	return []field{
		{"Node", n.Node}, {"NodeClaim", n.NodeClaim}, {"NodePool", n.NodePool}, {"capacity type", n.CapacityType}, {"made", stamp(m.now, n.Created)},
		{"Launched", stamp(m.now, n.Launched)}, {"Registered", stamp(m.now, n.Registered)}, {"Initialized", stamp(m.now, n.Initialized)},
		{"waits for", n.WaitsFor}, {"because", n.WaitsWhy},
		{"held", yes(n.Held)}, {"held too long", yes(n.Warned)}, {"StaticPodsMirrored", n.Status}, {"reason", n.Reason}, {"message", n.Message},
		{"static pods", number(n.Expected)}, {"not mirrored", strings.Join(n.Missing, ", ")}, {"released", stamp(m.now, n.Released)}, {"ID", n.ID},
	}
}
