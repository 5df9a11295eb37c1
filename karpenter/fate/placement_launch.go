package fate

import (
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// A launcher can bring nodes that do not exist yet: a NodePool, or, under Options.AssumeGrowth, whatever grows the node
// group of an existing node. A planned node is empty but for what every node of its kind runs.
type launcher struct {
	name   string
	closed string // why it brings nothing at all; empty where it does
	only   string // the node whose pods alone it serves; empty for all
	taints []corev1.Taint
	size   room // what a new node has for pods; anySize where it depends on the pods
	ports  []hostPort
	nodes  int // how many more it can bring
	sites  []*site

	pool   *pool             // nil for a copy
	labels map[string]string // of a copy
}

// manyNodes stands for no limit.
const manyNodes = math.MaxInt

// allLaunchers are the launchers in the order in which they are asked, worked out when the first pod needs one.
func (s *simulation) allLaunchers() []*launcher {
	if s.launching {
		return s.launchers
	}
	s.launching = true
	s.launchers = s.poolLaunchers()
	if s.options.AssumeGrowth {
		s.launchers = append(s.launchers, s.growthLaunchers()...)
	}
	return s.launchers
}

// launch finds the pod a place on a planned node, one that earlier pods wanted or a new one; nil where there is none.
func (s *simulation) launch(l *launcher, g *guest) *site {
	if s.refusal(l, g) != "" {
		return nil
	}
	for _, st := range l.sites {
		if s.joins(l, g, st) {
			l.charge(g)
			return st
		}
	}
	if l.nodes <= 0 {
		return nil
	}
	if st, _ := s.plan(l, g); st != nil {
		l.sites = append(l.sites, st)
		if l.nodes != manyNodes {
			l.nodes--
		}
		l.charge(g)
		return st
	}
	return nil
}

// refusal says why the launcher brings no node for this pod whatever else is planned; empty where it may.
func (s *simulation) refusal(l *launcher, g *guest) string {
	if l.closed != "" {
		return l.closed
	}
	if l.only != "" && l.only != g.pod.Spec.NodeName {
		return "is for the pods of " + l.only
	}
	if t := untolerated(l.taints, g.pod.Spec.Tolerations); t != nil {
		return "has taint " + t.ToString() + ", which the pod does not tolerate"
	}
	if lack := l.size.lacking(&g.needs); lack != "" {
		return "has nodes of at most " + quantity(lack, l.size.amount(lack)) + " " + string(lack)
	}
	if l.pool != nil {
		return l.pool.limited(&g.needs)
	}
	return ""
}

func (l *launcher) charge(g *guest) {
	if l.pool != nil {
		l.pool.charge(&g.needs)
	}
}

// joins seats the pod on a node that is already planned, and narrows that node's requirements to what both want.
func (s *simulation) joins(l *launcher, g *guest, st *site) bool {
	if l.pool == nil {
		return g.class.selected(st) && s.check(g, st) == fits
	}
	alternatives, _ := g.newNodeRequirements()
	for _, want := range alternatives {
		narrowed, why := l.pool.narrow(st.requirements, want)
		if why == "" && st.free.holds(&g.needs) && g.portTaken(st) == nil && s.checkNeighbours(g, st) == fits {
			st.requirements = narrowed
			return true
		}
	}
	return false
}

// plan makes a new node that takes the pod, or says why none does.
func (s *simulation) plan(l *launcher, g *guest) (*site, string) {
	st := s.newPlanned(l)
	if l.pool == nil {
		if !g.class.selected(st) {
			return nil, "does not match the pod's node selector or affinity"
		}
		if why := s.check(g, st); why != fits {
			return nil, s.describe(why, g, st)
		}
		return st, ""
	}
	alternatives, why := g.newNodeRequirements()
	for _, want := range alternatives {
		var requirements scheduling.Requirements
		if requirements, why = l.pool.narrow(l.pool.requirements, want); why != "" {
			continue
		}
		if why = s.inSomeDomain(g, st, requirements, s.domainKeys(g)); why == "" {
			return st, ""
		}
	}
	return nil, why
}

// newPlanned is an empty node of the launcher's kind. Its name is none that a Node can have.
func (s *simulation) newPlanned(l *launcher) *site {
	n := &corev1.Node{}
	n.Name = "(new node " + strconv.Itoa(len(l.sites)+1) + " of " + l.name + ")"
	n.Labels = map[string]string{}
	for k, v := range l.labels {
		n.Labels[k] = v
	}
	n.Labels[corev1.LabelHostname] = n.Name
	n.Spec.Taints = l.taints
	return &site{
		name: n.Name, node: n, labels: n.Labels, size: l.size, free: l.size.clone(), ports: slices.Clone(l.ports), planned: l,
	}
}

// domainKeys are the topology keys on which the rules between pods bear for this guest, hostname aside.
func (s *simulation) domainKeys(g *guest) []string {
	keys := map[string]bool{}
	if g.affinity != nil {
		for i := range g.affinity.terms {
			keys[g.affinity.terms[i].key] = true
		}
	}
	for _, t := range g.antiAffinity {
		keys[t.terms[0].key] = true
	}
	for _, b := range g.blockers {
		keys[b.key] = true
	}
	for i := range g.spreads {
		keys[g.spreads[i].spread.key] = true
	}
	delete(keys, corev1.LabelHostname)
	return sortedKeys(keys)
}

// inSomeDomain tries the new node in every domain of the keys that the requirements leave open, until one takes the pod.
// On success the site bears that domain's labels and requirements; otherwise the answer is the last obstacle.
func (s *simulation) inSomeDomain(g *guest, st *site, r scheduling.Requirements, keys []string) string {
	if len(keys) == 0 {
		st.bear(r)
		if why := s.checkNeighbours(g, st); why != fits {
			return s.describe(why, g, st)
		}
		return ""
	}
	domains := s.domains(r, keys[0])
	if len(domains) == 0 {
		return s.inSomeDomain(g, st, r, keys[1:])
	}
	why := ""
	for _, d := range domains {
		narrowed := maps.Clone(r)
		narrowed.Add(scheduling.NewRequirement(keys[0], corev1.NodeSelectorOpIn, d))
		if why = s.inSomeDomain(g, st, narrowed, keys[1:]); why == "" {
			return ""
		}
	}
	return why
}

// bear gives a planned node the requirements, and a label for each that leaves a single value.
func (st *site) bear(r scheduling.Requirements) {
	st.requirements = r
	st.labels = map[string]string{corev1.LabelHostname: st.name}
	for key, only := range r {
		if only.Operator() == corev1.NodeSelectorOpIn && only.Len() == 1 {
			st.labels[key] = only.Values()[0]
		}
	}
	st.node.Labels = st.labels
}

// anotherDomain is a value that no node has: a zone, say, in which nothing runs yet.
const anotherDomain = "(another)"

// domains are the values that a new node may have for a key: those that the requirements list; or, where they leave it
// open, those known from Nodes and one more. A key that they do not mention gets no value.
func (s *simulation) domains(r scheduling.Requirements, key string) []string {
	if !r.Has(key) {
		return nil
	}
	req := r.Get(key)
	if req.Operator() == corev1.NodeSelectorOpIn {
		values := req.Values()
		slices.Sort(values)
		return values
	}
	var values []string
	for _, v := range s.known(key) {
		if req.Has(v) {
			values = append(values, v)
		}
	}
	return append(values, anotherDomain)
}

// growthLaunchers are what a cluster that grows by itself could bring, in this order: for the pods of a going node a copy
// of that node, whose lasting taints they tolerate since they run there; for all, a copy of each Ready, schedulable node
// of another kind. A copy has the node's labels except its hostname, and runs its DaemonSet and static pods.
func (s *simulation) growthLaunchers() []*launcher {
	var own, others []*launcher
	kinds := map[string]bool{}
	for i := range s.sites {
		st := &s.sites[i]
		if st.closed == isGoing {
			l := s.copyOf(i)
			l.only, l.taints = st.name, nil
			own = append(own, l)
		}
		if st.closed != fits {
			continue
		}
		l := s.copyOf(i)
		if kind := signature(l.labels, l.taints, st.node.Status.Allocatable); !kinds[kind] {
			kinds[kind] = true
			others = append(others, l)
		}
	}
	return append(own, others...)
}

func (s *simulation) copyOf(i int) *launcher {
	st := &s.sites[i]
	l := &launcher{name: "another node like " + st.name, nodes: manyNodes, size: st.size.clone(), labels: map[string]string{}}
	for k, v := range st.labels {
		if k != corev1.LabelHostname {
			l.labels[k] = v
		}
	}
	for _, t := range st.node.Spec.Taints {
		if !scheduling.IsKnownEphemeralTaint(&t) {
			l.taints = append(l.taints, t)
		}
	}
	for _, r := range s.residents[i] {
		if _, mirror := r.pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror || ofDaemonSet(r.pod) {
			needs := residentNeeds(r.pod)
			l.size.take(&needs)
			l.ports = append(l.ports, hostPorts(r.pod)...)
		}
	}
	return l
}

func ofDaemonSet(pod *corev1.Pod) bool {
	ref := controllerOf(pod)
	return ref != nil && ref.Kind == "DaemonSet"
}
