package tui

import (
	"cmp"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

func newDecisions() *listing[*stream.Decision] {
	return newListing(spec[*stream.Decision]{
		noun:  "decision on",
		id:    func(d *stream.Decision) string { return number(d.Sequence) + " " + number(d.Time.UnixNano()) },
		name:  func(d *stream.Decision) string { return d.Object },
		rows:  func(s *stream.State) []*stream.Decision { return s.Decisions },
		empty: "nothing has been decided yet",
		text: func(d *stream.Decision) string {
			return lower(d.What, d.Object, d.Node, d.Verdict, d.Reason, d.Cause, d.Why)
		},
		orders: []order[*stream.Decision]{
			{"newest", byNewest},
			{"what", func(a, b *stream.Decision) int {
				return cmp.Or(cmp.Compare(a.What, b.What), byNewest(a, b))
			}},
			{"object", func(a, b *stream.Decision) int {
				return cmp.Or(cmp.Compare(a.Object, b.Object), byNewest(a, b))
			}},
		},
		columns: decisionColumns(),
		detail:  func(d *stream.Decision, _ moment) string { return cmp.Or(d.Why, decisionReason(d)) },
		fields: func(d *stream.Decision, m moment) []field {
			return []field{
				{"time", stamp(m.now, d.Time)}, {"what", d.What}, {"object", d.Object}, {"node", d.Node}, {"verdict", d.Verdict},
				{"reason", d.Reason}, {"cause", d.Cause}, {"why", d.Why}, {"number", number(d.Sequence)},
			}
		},
		follows: true,
	})
}

// byNewest goes by time first: another leader counts from one again.
func byNewest(a, b *stream.Decision) int {
	return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.Sequence, a.Sequence))
}

func decisionCell(d *stream.Decision) cell {
	c := cell{". " + d.What, plain}
	switch what := strings.TrimPrefix(d.What, "would "); what {
	case "lost", "mark":
		c = cell{"! " + d.What, alarm}
	case "held":
		c = cell{"~ " + d.What, watch}
	case "release":
		c = cell{"+ " + d.What, good}
	case "clear":
		c = cell{"- " + d.What, good}
	}
	return c
}

func decisionReason(d *stream.Decision) string {
	return strings.Join(strings.Fields(d.Verdict+" "+d.Reason), " ")
}

func decisionColumns() []column[*stream.Decision] {
	type decision = *stream.Decision
	return []column[decision]{
		{"TIME", fixed(narrow, 8), false, func(d decision, _ moment) cell { return cell{d.Time.UTC().Format("15:04:05"), quiet} }},
		{"WHAT", growing(narrow, 13, 17, 1), false, func(d decision, _ moment) cell { return decisionCell(d) }},
		{"OBJECT", growing(narrow, 22, 52, 2), false, func(d decision, _ moment) cell { return cell{d.Object, plain} }},
		{"NODE", growing(usual, 14, 30, 1), false, func(d decision, _ moment) cell { return cell{dash(d.Node), plain} }},
		{"REASON", growing(roomy, 20, 30, 1), false, func(d decision, _ moment) cell { return cell{dash(decisionReason(d)), plain} }},
		{"CAUSE", growing(ample, 18, 40, 1), false, func(d decision, _ moment) cell { return cell{dash(d.Cause), plain} }},
		{"WHY", growing(ample, 20, 80, 1), false, func(d decision, _ moment) cell { return cell{dash(d.Why), quiet} }},
	}
}
