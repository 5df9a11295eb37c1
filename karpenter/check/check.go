// Package check owns the question "what if this node went now" (DESIGN.md section 9): which nodes are asked about, the
// report on them, and how it is shown. Verdicts are package fate's, the state of a node is package karpenter's; nothing
// here writes to a cluster.
package check

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/inventory"
)

// A Report is the answer. Its JSON is the one of DESIGN.md section 9: every field is always there, times are RFC3339 in UTC
// and empty where none is known.
type Report struct {
	Nodes []Node `json:"nodes"`

	now time.Time
}

// A Node is the answer for one node: its pods, and those on other nodes that it costs.
type Node struct {
	Name       string       `json:"name"`
	Disruption Disruption   `json:"disruption"`
	Pods       []Pod        `json:"pods"`
	Collateral []Collateral `json:"collateral"`

	spot      bool
	estimated bool
	deadline  time.Time
}

// A Disruption is the state of a node, as karpenter.Disruption has it.
type Disruption struct {
	State    karpenter.State `json:"state"`
	Cause    string          `json:"cause"`
	Since    string          `json:"since"`
	Deadline string          `json:"deadline"`
	Stale    bool            `json:"stale"`
}

// A Pod is the fate of one pod of the node. UID is empty where the input had none.
type Pod struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	UID       types.UID      `json:"uid"`
	Verdict   fate.Verdict   `json:"verdict"`
	Reason    fate.Reason    `json:"reason"`
	Certainty fate.Certainty `json:"certainty"`
	Placement fate.Placement `json:"placement"`
	Flags     []fate.Flag    `json:"flags"`
	Message   string         `json:"message"`

	owner string
}

// A Collateral is a pod on another node that this node costs.
type Collateral struct {
	On        string         `json:"on"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	UID       types.UID      `json:"uid"`
	Verdict   fate.Verdict   `json:"verdict"`
	Reason    fate.Reason    `json:"reason"`
	Certainty fate.Certainty `json:"certainty"`
	Message   string         `json:"message"`

	owner string
}

// A Question is what is asked of an inventory.
type Question struct {
	Config *karpenter.Config
	Now    time.Time
	// Nodes are those to be reported; the disrupted ones go in any case.
	Nodes  []*corev1.Node
	Filter Filter
	// AssumeGrowth is fate.Options.AssumeGrowth.
	AssumeGrowth bool
}

// A Filter narrows the pods that are reported, and with them the counts and the exit status. Empty lets all through.
type Filter struct {
	Namespaces []string
	Verdicts   []fate.Verdict
}

func (f Filter) lets(namespace string, verdict fate.Verdict) bool {
	return (len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, namespace)) &&
		(len(f.Verdicts) == 0 || slices.Contains(f.Verdicts, verdict))
}

// Ask answers the question. All disrupted nodes go together, with those that the cluster has lost already; a node that is
// not disrupted is asked about as if it went too. The nodes come in the order of urgency: committed by deadline, where an
// unknown one counts as now, then pending, then the rest, and by name.
func Ask(inv *inventory.Inventory, q Question) *Report {
	going := make([]fate.Departure, 0)
	disruptions := map[string]karpenter.Disruption{}
	for _, node := range slices.Concat(inv.Nodes(), inv.Vanished()) {
		d := disruption(inv, q, node)
		disruptions[node.Name] = d
		if d.State != karpenter.None {
			going = append(going, d.Departure(node))
		}
	}
	base := fate.New(inv, going, fate.Options{Now: q.Now, Place: true, AssumeGrowth: q.AssumeGrowth})

	report := &Report{Nodes: make([]Node, 0, len(q.Nodes)), now: q.Now}
	for _, node := range q.Nodes {
		d := disruptions[node.Name]
		roll := base
		if d.State == karpenter.None {
			roll = base.With(d.Departure(node))
		}
		report.Nodes = append(report.Nodes, describe(inv, q.Filter, node, d, roll))
	}
	slices.SortFunc(report.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.kill(q.Now).Compare(b.kill(q.Now)), cmp.Compare(a.Name, b.Name))
	})
	return report
}

// disruption is the node's state. A signal that nothing dates is seen now for the first time (DESIGN.md section 2), and so
// is the end of a node that the cluster does not have any more: its pods go when the garbage collector finds them.
func disruption(inv *inventory.Inventory, q Question, node *corev1.Node) karpenter.Disruption {
	if inv.Node(node.Name) == nil {
		return karpenter.Disruption{State: karpenter.Committed, Cause: karpenter.NodeDeleted}.FirstSeen(q.Now)
	}
	d := q.Config.Disrupt(node, inv.NodeClaim(node), q.Now)
	if d.Since.IsZero() {
		d = d.FirstSeen(q.Now)
	}
	return d
}

// kill is the next moment that pods may be killed.
func (n Node) kill(now time.Time) time.Time {
	if n.deadline.IsZero() {
		return now
	}
	return n.deadline
}

func rank(n Node) int {
	return slices.Index([]karpenter.State{karpenter.Committed, karpenter.Pending, karpenter.None}, n.Disruption.State)
}

func describe(inv *inventory.Inventory, filter Filter, node *corev1.Node, d karpenter.Disruption, roll *fate.Roll) Node {
	n := Node{
		Name: node.Name,
		Disruption: Disruption{
			State: d.State, Cause: d.Cause, Since: timestamp(d.Since), Deadline: timestamp(d.Deadline), Stale: d.Stale,
		},
		Pods:       []Pod{},
		Collateral: []Collateral{},
		spot:       isSpot(node), estimated: d.SinceEstimated, deadline: d.Deadline,
	}
	for _, f := range roll.On(node.Name) {
		if filter.lets(f.Pod.Namespace, f.Verdict) {
			n.Pods = append(n.Pods, podOf(inv, f))
		}
	}
	for _, f := range roll.Collateral(node.Name) {
		if filter.lets(f.Pod.Namespace, f.Verdict) {
			n.Collateral = append(n.Collateral, collateralOf(inv, f))
		}
	}
	return n
}

func podOf(inv *inventory.Inventory, f fate.Fate) Pod {
	flags := f.Flags
	if flags == nil {
		flags = []fate.Flag{}
	}
	return Pod{
		Namespace: f.Pod.Namespace, Name: f.Pod.Name, UID: inventory.KnownUID(f.Pod),
		Verdict: f.Verdict, Reason: f.Reason, Certainty: f.Certainty, Placement: f.Placement,
		Flags: flags, Message: f.Message, owner: ownerName(inv, f.Pod),
	}
}

func collateralOf(inv *inventory.Inventory, f fate.Fate) Collateral {
	return Collateral{
		On: f.Pod.Spec.NodeName, Namespace: f.Pod.Namespace, Name: f.Pod.Name, UID: inventory.KnownUID(f.Pod),
		Verdict: f.Verdict, Reason: f.Reason, Certainty: f.Certainty, Message: f.Message, owner: ownerName(inv, f.Pod),
	}
}

// ownerName is how a person calls what the pod belongs to, "Deployment/web"; empty for a pod of nobody's.
func ownerName(inv *inventory.Inventory, pod *corev1.Pod) string {
	kind, name, ok := inv.TopOwner(pod)
	if !ok {
		return ""
	}
	return kind.Kind + "/" + name
}

func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// spotLabels mark capacity that its provider may take back: Karpenter, EKS, GKE, AKS.
var spotLabels = map[string]string{
	"karpenter.sh/capacity-type":            "spot",
	"eks.amazonaws.com/capacityType":        "SPOT",
	"cloud.google.com/gke-spot":             "true",
	"cloud.google.com/gke-preemptible":      "true",
	"kubernetes.azure.com/scalesetpriority": "spot",
}

func isSpot(node *corev1.Node) bool {
	for key, value := range spotLabels {
		if node.Labels[key] == value {
			return true
		}
	}
	return false
}

// Hurts tells whether a pod that is reported, on its node or elsewhere, is lost or stranded.
func (r *Report) Hurts() bool {
	for _, n := range r.Nodes {
		counts := n.counts()
		if counts[fate.Lost]+counts[fate.Stranded] > 0 {
			return true
		}
	}
	return false
}

// counts are the pods by verdict, those on other nodes included.
func (n Node) counts() map[fate.Verdict]int {
	counts := map[fate.Verdict]int{}
	for _, p := range n.Pods {
		counts[p.Verdict]++
	}
	for _, c := range n.Collateral {
		counts[c.Verdict]++
	}
	return counts
}
