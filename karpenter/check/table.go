package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// verdicts are all of them in the order in which people want to read them, with the words of a count of one and of more.
var verdicts = []struct {
	verdict    fate.Verdict
	one, more  string
	listedOnly bool // not listed unless all are asked for
}{
	{fate.Lost, "lost", "lost", false},
	{fate.Stranded, "stranded", "stranded", false},
	{fate.Unsure, "unsure", "unsure", false},
	{fate.Returns, "returns", "return", true},
	{fate.GoesWithNode, "goes with the node", "go with the node", true},
	{fate.Static, "static", "static", true},
	{fate.Finished, "finished", "finished", true},
}

// order is the place of a verdict among them, and whether it is listed only on demand.
func order(v fate.Verdict) (int, bool) {
	for i, known := range verdicts {
		if known.verdict == v {
			return i, known.listedOnly
		}
	}
	return len(verdicts), false
}

func (p *painter) report(r *Report) {
	for _, n := range r.Nodes {
		p.node(n, r.now)
		p.line("")
	}
	p.total(r.Nodes)
}

func (p *painter) total(nodes []Node) {
	if len(nodes) == 0 {
		p.line(p.view.Empty)
		return
	}
	p.line(p.paint(bold, plural(len(nodes), "node")+": "+tally(uniqueCounts(nodes))))
}

// node shows the headline of one node, its pods, and those that it costs elsewhere.
func (p *painter) node(n Node, now time.Time) {
	p.line(p.headline(n, now))
	if n.Disruption.Stale {
		p.line("  a stale taint " + karpenter.ToBeDeletedTaint + " counts for nothing")
	}
	counts := tally(n.counts())
	if n.Disruption.State == karpenter.None {
		counts = "if it went: " + counts
	}
	p.line("  " + counts)
	p.pods(n)
	p.flagged(n)
	p.collateral(n)
}

func (p *painter) headline(n Node, now time.Time) string {
	parts := []string{p.paint(bold, clean(n.Name))}
	switch n.Disruption.State {
	case karpenter.None:
		parts = append(parts, "not disrupted")
	default:
		color := red
		if n.Disruption.State == karpenter.Pending {
			color = yellow
		}
		parts = append(parts, p.paint(color, string(n.Disruption.State)), clean(n.Disruption.Cause), countdown(n, now))
	}
	if n.spot {
		parts = append(parts, "spot")
	}
	return strings.Join(parts, "  ")
}

// countdown says how much time is left.
func countdown(n Node, now time.Time) string {
	if n.deadline.IsZero() {
		return "no deadline known"
	}
	left := n.deadline.Sub(now).Round(time.Second)
	switch {
	case left <= 0:
		return "deadline passed"
	case n.estimated:
		return "deadline in about " + short(left)
	}
	return "deadline in " + short(left)
}

// short drops the zero seconds that time.Duration prints: 12m rather than 12m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (p *painter) pods(n Node) {
	pods := slices.Clone(n.Pods)
	slices.SortStableFunc(pods, func(a, b Pod) int { return compareVerdicts(a.Verdict, b.Verdict) })
	t := table{header: []string{"VERDICT", "POD", "REASON", "FLAGS", "WHY"}}
	if p.view.Format == "wide" {
		t.header = []string{"VERDICT", "POD", "OWNER", "REASON", "PLACEMENT", "UID", "FLAGS", "WHY"}
	}
	for _, pod := range pods {
		if _, onDemand := order(pod.Verdict); onDemand && !p.view.ShowAll {
			continue
		}
		row := []string{string(pod.Verdict), pod.Namespace + "/" + pod.Name, reason(pod.Reason, pod.Certainty), flags(pod.Flags), pod.Message}
		if p.view.Format == "wide" {
			row = slices.Insert(row, 2, dash(pod.owner))
			row = slices.Insert(row, 4, dash(string(pod.Placement)), dash(string(pod.UID)))
		}
		t.add(pod.Verdict, row...)
	}
	p.table(t)
}

// priceFlags are those that cost a pod something although it returns: data, time, or an orderly end.
var priceFlags = []fate.Flag{
	fate.EmptyDirData, fate.HostPathData, fate.LocalVolume, fate.GraceExceedsNotice, fate.NotEvicted, fate.DoNotDisrupt,
	fate.BlockedByPDB, fate.HasFinalizer,
}

// namesShown bounds how many pods of one flag are named.
const namesShown = 5

// flagged shows, flag by flag, which of the pods that return do so at a price. They are rows of their own only on demand.
func (p *painter) flagged(n Node) {
	if p.view.ShowAll {
		return
	}
	t := table{title: "Of those that return:", header: []string{"FLAG", "PODS", "WHICH"}}
	for _, flag := range priceFlags {
		var names []string
		for _, pod := range n.Pods {
			if pod.Verdict == fate.Returns && slices.Contains(pod.Flags, flag) {
				names = append(names, pod.Namespace+"/"+pod.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		which := strings.Join(names[:min(len(names), namesShown)], ", ")
		if more := len(names) - namesShown; more > 0 {
			which += fmt.Sprintf(" and %d more (--show-all lists them)", more)
		}
		t.add(fate.Returns, string(flag), fmt.Sprint(len(names)), which)
	}
	p.table(t)
}

func (p *painter) collateral(n Node) {
	pods := slices.Clone(n.Collateral)
	slices.SortStableFunc(pods, func(a, b Collateral) int { return compareVerdicts(a.Verdict, b.Verdict) })
	t := table{title: "On other nodes, because of " + clean(n.Name) + ":", header: []string{"VERDICT", "POD", "NODE", "REASON", "WHY"}}
	if p.view.Format == "wide" {
		t.header = []string{"VERDICT", "POD", "NODE", "OWNER", "REASON", "UID", "WHY"}
	}
	for _, c := range pods {
		row := []string{string(c.Verdict), c.Namespace + "/" + c.Name, c.On, reason(c.Reason, c.Certainty), c.Message}
		if p.view.Format == "wide" {
			row = slices.Insert(row, 3, dash(c.owner))
			row = slices.Insert(row, 5, dash(string(c.UID)))
		}
		t.add(c.Verdict, row...)
	}
	p.table(t)
}

func compareVerdicts(a, b fate.Verdict) int {
	i, _ := order(a)
	j, _ := order(b)
	return i - j
}

// reason marks what rests on an assumption.
func reason(r fate.Reason, c fate.Certainty) string {
	if c == fate.Assumed {
		return string(r) + " (assumed)"
	}
	return string(r)
}

func flags(flags []fate.Flag) string {
	words := make([]string, 0, len(flags))
	for _, f := range flags {
		words = append(words, string(f))
	}
	return dash(strings.Join(words, ","))
}

// dash keeps an empty cell visible.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// tally counts pods in words: "2 lost, 1 returns".
func tally(counts map[fate.Verdict]int) string {
	var parts []string
	for _, v := range verdicts {
		switch n := counts[v.verdict]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+v.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, v.more))
		}
	}
	if len(parts) == 0 {
		return "no pods"
	}
	return strings.Join(parts, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
