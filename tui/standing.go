package tui

import (
	"cmp"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

func newStanding() *listing[*stream.Standing] {
	type standing = *stream.Standing
	byCapacity := func(a, b standing) int {
		return cmp.Or(cmp.Compare(capacityRank(a.CapacityType), capacityRank(b.CapacityType)), cmp.Compare(atRisk(b), atRisk(a)))
	}
	return newListing(spec[standing]{
		noun:  "node",
		id:    func(s standing) string { return s.Node },
		name:  func(s standing) string { return s.Node },
		rows:  func(s *stream.State) []standing { return s.Standing },
		empty: "no healthy node has pods that would be lost or stranded if it went, as far as that is known",
		text: func(s standing) string {
			names := make([]string, 0, len(s.Pods)+2)
			for _, p := range s.Pods {
				names = append(names, p.Namespace+"/"+p.Name)
			}
			return lower(append(names, s.Node, s.CapacityType)...)
		},
		orders: []order[standing]{
			{"spot first", byCapacity},
			{"lost", func(a, b standing) int { return cmp.Compare(b.Verdicts[lost], a.Verdicts[lost]) }},
			{"name", func(a, b standing) int { return cmp.Compare(a.Node, b.Node) }},
		},
		columns: []column[standing]{
			{"CAPACITY", growing(narrow, 11, 13, 1), false, func(s standing, _ moment) cell { return capacityCell(s.CapacityType) }},
			{"NODE", growing(narrow, 18, 44, 2), false, func(s standing, _ moment) cell { return cell{s.Node, plain} }},
			{"LOST", fixed(narrow, 4), true, func(s standing, _ moment) cell { return counted(s.Verdicts[lost], alarm) }},
			{"STRANDED", fixed(narrow, 8), true, func(s standing, _ moment) cell { return counted(s.Verdicts[stranded], watch) }},
			{"UNSURE", fixed(usual, 6), true, func(s standing, _ moment) cell { return counted(s.Verdicts[unsure], watch) }},
			{"PODS", growing(usual, 14, 120, 1), false, func(s standing, _ moment) cell { return cell{firstPods(s), quiet} }},
		},
		detail: func(s standing, _ moment) string {
			return "If it went now: " + cmp.Or(verdictCounts(s.Verdicts), "nothing lost") + ". " + firstPods(s)
		},
		fields: func(s standing, _ moment) []field {
			return []field{{"capacity type", s.CapacityType}, {"if it went now", verdictCounts(s.Verdicts)}, {"pods", firstPods(s)}}
		},
	})
}

func atRisk(s *stream.Standing) int { return s.Verdicts[lost] + s.Verdicts[stranded] }

const spot = "spot"

// capacityRank puts spot first: it goes without being asked.
func capacityRank(capacityType string) int {
	if strings.EqualFold(capacityType, spot) {
		return 0
	}
	return 1
}

func capacityCell(capacityType string) cell {
	if capacityRank(capacityType) == 0 {
		return cell{"! " + capacityType, watch}
	}
	return cell{". " + dash(capacityType), plain}
}

func firstPods(s *stream.Standing) string {
	names := make([]string, len(s.Pods))
	for i, p := range s.Pods {
		names[i] = p.Namespace + "/" + p.Name
	}
	return strings.Join(names, ", ")
}

// newStandingPods lists the pods that would not come back if a healthy node went.
func newStandingPods(node string) *listing[*stream.StandingPod] {
	type pod = *stream.StandingPod
	byName := func(a, b pod) int { return cmp.Compare(standingName(a), standingName(b)) }
	return newListing(spec[pod]{
		noun:  "pod",
		id:    standingName,
		name:  standingName,
		rows:  func(s *stream.State) []pod { return standingOf(s, node) },
		empty: "no pod of " + clean(node) + " would be lost or stranded if it went",
		text:  func(p pod) string { return lower(standingName(p), p.Verdict, p.Reason) },
		orders: []order[pod]{
			{"verdict", func(a, b pod) int {
				return cmp.Or(cmp.Compare(verdictRank(a.Verdict), verdictRank(b.Verdict)), byName(a, b))
			}},
			{"name", byName},
			{"reason", func(a, b pod) int { return cmp.Or(cmp.Compare(a.Reason, b.Reason), byName(a, b)) }},
		},
		columns: []column[pod]{
			{"VERDICT", fixed(narrow, 14), false, func(p pod, _ moment) cell { return verdictCell(p.Verdict) }},
			{"POD", growing(narrow, 20, 60, 2), false, func(p pod, _ moment) cell { return cell{standingName(p), plain} }},
			{"REASON", fixed(narrow, 19), false, func(p pod, _ moment) cell { return cell{p.Reason, plain} }},
			{"WHY", growing(roomy, 20, 120, 1), false, func(p pod, _ moment) cell { return cell{p.Message, quiet} }},
		},
		detail: func(p pod, _ moment) string { return p.Message },
		fields: func(p pod, _ moment) []field {
			return []field{{"namespace", p.Namespace}, {"name", p.Name}, {"node", node}, {"verdict", p.Verdict}, {"reason", p.Reason}, {"why", p.Message}}
		},
	})
}

func standingName(p *stream.StandingPod) string { return p.Namespace + "/" + p.Name }

func standingOf(state *stream.State, node string) []*stream.StandingPod {
	for _, s := range state.Standing {
		if s.Node == node {
			return s.Pods
		}
	}
	return nil
}
