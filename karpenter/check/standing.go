package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// The standing answer (DESIGN.md section 5) is for a quiet day: what would be lost if any of the nodes went, by who can
// mend it rather than by node, on spot capacity first.

// A group is what one line of the standing answer stands for.
type group struct {
	verdict fate.Verdict
	who     string
	pods    map[string]bool
	nodes   map[string]bool
	reasons map[string]bool
	flags   map[fate.Flag]bool
	message string
}

func (p *painter) standing(r *Report) {
	var spot, other []Node
	for _, n := range r.Nodes {
		if n.spot {
			spot = append(spot, n)
		} else {
			other = append(other, n)
		}
	}
	p.standingOf("spot node", spot)
	p.standingOf("other node", other)
	p.total(r.Nodes)
}

func (p *painter) standingOf(what string, nodes []Node) {
	if len(nodes) == 0 {
		return
	}
	p.line(p.paint(bold, plural(len(nodes), what)) + "  if any of them went: " + tally(uniqueCounts(nodes)))
	t := table{header: []string{"VERDICT", strings.ToUpper(p.view.GroupBy), "PODS", "NODES", "REASON", "FLAGS", "WHY"}}
	for _, g := range p.groups(nodes) {
		t.add(g.verdict, string(g.verdict), g.who, fmt.Sprint(len(g.pods)), some(g.nodes), strings.Join(sorted(g.reasons), ","),
			flags(sorted(g.flags)), g.message)
	}
	p.table(t)
	p.line("")
}

// groups collects the pods that are listed, the worst and the most numerous first.
func (p *painter) groups(nodes []Node) []*group {
	byKey := map[string]*group{}
	for _, n := range nodes {
		for _, pod := range n.Pods {
			g := p.groupOf(byKey, pod.Verdict, pod.Namespace, pod.owner)
			g.take(pod.Namespace+"/"+pod.Name, n.Name, reason(pod.Reason, pod.Certainty), pod.Message, pod.Flags)
		}
		for _, c := range n.Collateral {
			g := p.groupOf(byKey, c.Verdict, c.Namespace, c.owner)
			g.take(c.Namespace+"/"+c.Name, n.Name, reason(c.Reason, c.Certainty), c.Message, nil)
		}
	}
	groups := make([]*group, 0, len(byKey))
	for _, g := range byKey {
		if _, onDemand := order(g.verdict); !onDemand || p.view.ShowAll {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(compareVerdicts(a.verdict, b.verdict), cmp.Compare(len(b.pods), len(a.pods)), cmp.Compare(a.who, b.who))
	})
	return groups
}

func (p *painter) groupOf(byKey map[string]*group, verdict fate.Verdict, namespace, owner string) *group {
	who := namespace
	if p.view.GroupBy == "owner" {
		who = namespace + " " + owner
		if owner == "" {
			who = namespace + " (no owner)"
		}
	}
	key := string(verdict) + " " + who
	g := byKey[key]
	if g == nil {
		g = &group{
			verdict: verdict, who: who,
			pods: map[string]bool{}, nodes: map[string]bool{}, reasons: map[string]bool{}, flags: map[fate.Flag]bool{},
		}
		byKey[key] = g
	}
	return g
}

func (g *group) take(pod, node, reason, message string, flags []fate.Flag) {
	g.pods[pod], g.nodes[node], g.reasons[reason] = true, true, true
	for _, f := range flags {
		g.flags[f] = true
	}
	if g.message == "" {
		g.message = message
	}
}

// uniqueCounts counts each pod once, with the worst that any of the nodes would do to it.
func uniqueCounts(nodes []Node) map[fate.Verdict]int {
	worst := map[string]fate.Verdict{}
	see := func(pod string, v fate.Verdict) {
		if known, ok := worst[pod]; !ok || compareVerdicts(v, known) < 0 {
			worst[pod] = v
		}
	}
	for _, n := range nodes {
		for _, pod := range n.Pods {
			see(pod.Namespace+"/"+pod.Name, pod.Verdict)
		}
		for _, c := range n.Collateral {
			see(c.Namespace+"/"+c.Name, c.Verdict)
		}
	}
	counts := map[fate.Verdict]int{}
	for _, v := range worst {
		counts[v]++
	}
	return counts
}

// some gives up to three names, or two and the number of the rest.
func some(names map[string]bool) string {
	all := sorted(names)
	if len(all) <= 3 {
		return strings.Join(all, ",")
	}
	return fmt.Sprintf("%s,%s +%d", all[0], all[1], len(all)-2)
}

func sorted[K cmp.Ordered](set map[K]bool) []K { return slices.Sorted(maps.Keys(set)) }
