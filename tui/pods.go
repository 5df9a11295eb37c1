package tui

import (
	"cmp"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// newPods lists the pods that a going node costs or frees, on it and elsewhere.
func newPods(node string) *listing[*stream.Pod] {
	return newListing(spec[*stream.Pod]{
		noun:  "pod",
		id:    func(p *stream.Pod) string { return p.UID },
		name:  func(p *stream.Pod) string { return p.Namespace + "/" + p.Name },
		rows:  func(s *stream.State) []*stream.Pod { return s.Pods[node] },
		empty: "nothing is known of pods of " + clean(node) + ": it has none, or it does not go any more",
		text: func(p *stream.Pod) string {
			return lower(p.Namespace+"/"+p.Name, p.Verdict, p.Reason, p.On, p.Placement, strings.Join(p.Flags, " "))
		},
		orders: []order[*stream.Pod]{
			{"verdict", func(a, b *stream.Pod) int {
				return cmp.Or(cmp.Compare(verdictRank(a.Verdict), verdictRank(b.Verdict)), byPodName(a, b))
			}},
			{"name", byPodName},
			{"reason", func(a, b *stream.Pod) int { return cmp.Or(cmp.Compare(a.Reason, b.Reason), byPodName(a, b)) }},
		},
		columns: podColumns(),
		detail: func(p *stream.Pod, _ moment) string {
			text := p.Message
			if p.On != "" {
				text = "Runs on " + p.On + ". " + text
			}
			if len(p.Flags) > 0 {
				text = strings.TrimRight(text, ". ") + ". Flags: " + strings.Join(p.Flags, ", ")
			}
			return text
		},
		fields: func(p *stream.Pod, _ moment) []field {
			return []field{
				{"namespace", p.Namespace}, {"name", p.Name}, {"UID", p.UID}, {"node that goes", p.Node}, {"runs on", cmp.Or(p.On, p.Node)},
				{"verdict", p.Verdict}, {"reason", p.Reason}, {"certainty", p.Certainty}, {"placement", p.Placement},
				{"flags", strings.Join(p.Flags, ", ")}, {"marked", yes(p.Marked)}, {"why", p.Message},
			}
		},
	})
}

func byPodName(a, b *stream.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func podColumns() []column[*stream.Pod] {
	type pod = *stream.Pod
	return []column[pod]{
		{"VERDICT", fixed(narrow, 14), false, func(p pod, _ moment) cell { return verdictCell(p.Verdict) }},
		{"POD", growing(narrow, 20, 60, 4), false, func(p pod, _ moment) cell { return cell{p.Namespace + "/" + p.Name, plain} }},
		{"REASON", fixed(narrow, 19), false, func(p pod, _ moment) cell { return cell{p.Reason, plain} }},
		{"MARK", fixed(usual, 6), false, func(p pod, _ moment) cell {
			if p.Marked {
				return cell{"marked", plain}
			}
			return cell{"-", quiet}
		}},
		{"ON", growing(roomy, 12, 30, 1), false, func(p pod, _ moment) cell {
			if p.On == "" {
				return cell{"this node", quiet}
			}
			return cell{p.On, watch}
		}},
		{"FLAGS", growing(roomy, 14, 40, 1), false, func(p pod, _ moment) cell { return cell{dash(strings.Join(p.Flags, ",")), plain} }},
		{"CERTAINTY", fixed(ample, 9), false, func(p pod, _ moment) cell { return cell{p.Certainty, plain} }},
		{"PLACEMENT", fixed(ample, 9), false, func(p pod, _ moment) cell { return cell{dash(p.Placement), plain} }},
		{"WHY", growing(ample, 20, 80, 1), false, func(p pod, _ moment) cell { return cell{p.Message, quiet} }},
	}
}
