package fate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Topology spread with DoNotSchedule, as kube-scheduler's PodTopologySpread filter has it. Domains are those of the nodes
// that stay, cordoned and not Ready ones too: for the scheduler they are there. Terminating pods are not counted
// (kubernetes/kubernetes#87621). Cluster-level default constraints are all ScheduleAnyway and play no part.

// A spread counts matching pods by domain for one constraint. Pods with the same constraint share it.
type spread struct {
	key       string
	namespace string
	selector  labels.Selector
	keys      []string // every constraint's key: a node that lacks one counts for none
	class     *class   // of the pods that share it
	owner     *corev1.Pod
	affinity  bool // nodeAffinityPolicy Honor
	taints    bool // nodeTaintsPolicy Honor

	count map[string]int
	least int // the fewest in any domain; -1: to be worked out
}

// A spreadNeed is one constraint of one guest.
type spreadNeed struct {
	spread     *spread
	maxSkew    int
	minDomains int
	self       int // 1 where the guest counts itself
}

// spreadNeeds reads the guest's hard constraints.
func (s *simulation) spreadNeeds(g *guest) []spreadNeed {
	var hard []*corev1.TopologySpreadConstraint
	var keys []string
	for i := range g.pod.Spec.TopologySpreadConstraints {
		c := &g.pod.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != corev1.ScheduleAnyway {
			hard = append(hard, c)
			keys = append(keys, c.TopologyKey)
		}
	}
	needs := make([]spreadNeed, 0, len(hard))
	for _, c := range hard {
		sp := s.spreadOf(g, c, keys)
		n := spreadNeed{spread: sp, maxSkew: int(c.MaxSkew), minDomains: 1}
		if c.MinDomains != nil {
			n.minDomains = int(*c.MinDomains)
		}
		if sp.selector.Matches(labels.Set(g.pod.Labels)) {
			n.self = 1
		}
		needs = append(needs, n)
	}
	return needs
}

// spreadOf finds or counts the spread of a constraint.
func (s *simulation) spreadOf(g *guest, c *corev1.TopologySpreadConstraint, keys []string) *spread {
	selector := mergeLabelKeys(selectorOrNothing(c.LabelSelector), selection.In, c.MatchLabelKeys, g.pod.Labels)
	sp := &spread{
		key: c.TopologyKey, namespace: g.pod.Namespace, selector: selector, keys: keys, class: g.class, owner: g.pod,
		affinity: c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
		taints:   c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
		count:    map[string]int{}, least: -1,
	}
	key := signature(sp.key, sp.namespace, selector.String(), keys, sp.affinity, sp.taints,
		g.pod.Spec.NodeSelector, requiredNodeAffinity(g.pod), g.pod.Spec.Tolerations)
	if known, ok := s.spreads[key]; ok {
		return known
	}
	for i := range s.sites {
		if st := &s.sites[i]; st.closed != isGoing && sp.includes(st) {
			sp.count[st.labels[sp.key]] += 0
		}
	}
	s.eachNeighbour(sets.New(sp.namespace), sp.add)
	s.spreads[key] = sp
	return sp
}

// includes says whether the site's domain and pods count.
func (sp *spread) includes(st *site) bool {
	for _, k := range sp.keys {
		if _, ok := st.labels[k]; !ok {
			return false
		}
	}
	// A planned node exists only for pods that its NodePool admits.
	if sp.affinity && st.planned == nil && !sp.class.selected(st) {
		return false
	}
	return !sp.taints || untolerated(st.taints(), sp.owner.Spec.Tolerations) == nil
}

// taints are the Node's, with the one that follows a cordon within moments.
func (st *site) taints() []corev1.Taint {
	if !st.node.Spec.Unschedulable {
		return st.node.Spec.Taints
	}
	return append([]corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}, st.node.Spec.Taints...)
}

// add counts a pod, and the domain of a planned node with its first pod.
func (sp *spread) add(p *corev1.Pod, st *site) {
	counts := p.Namespace == sp.namespace && p.DeletionTimestamp == nil && !sp.selector.Empty() &&
		sp.selector.Matches(labels.Set(p.Labels))
	if !counts && st.planned == nil || !sp.includes(st) {
		return
	}
	v := st.labels[sp.key]
	sp.count[v] += 0
	if counts {
		sp.count[v]++
	}
	sp.least = -1
}

// minimum is the fewest matching pods in any domain.
func (sp *spread) minimum() int {
	if sp.least >= 0 {
		return sp.least
	}
	first := true
	sp.least = 0
	for _, n := range sp.count {
		if first || n < sp.least {
			sp.least, first = n, false
		}
	}
	return sp.least
}

// allows is the skew rule: pods in the domain, and itself, less the fewest in any domain, is at most maxSkew. With fewer
// domains than minDomains the fewest counts as none.
func (n *spreadNeed) allows(st *site) bool {
	v, ok := st.labels[n.spread.key]
	if !ok {
		return false
	}
	domains, least := len(n.spread.count), n.spread.minimum()
	here, exists := n.spread.count[v]
	if !exists && st.planned != nil {
		domains, least = domains+1, 0
	}
	if domains < n.minDomains {
		least = 0
	}
	return here+n.self-least <= n.maxSkew
}

// skewedBy returns the guest's constraint that the site would offend, nil where none is.
func (g *guest) skewedBy(st *site) *spreadNeed {
	for i := range g.spreads {
		if !g.spreads[i].allows(st) {
			return &g.spreads[i]
		}
	}
	return nil
}
