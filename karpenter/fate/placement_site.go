package fate

import (
	"maps"
	"slices"
	"sort"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// An obstacle is what keeps a pod from a node.
type obstacle int

// The obstacles, in the order in which they are counted in an answer.
const (
	fits obstacle = iota
	isGoing
	isNotReady
	isCordoned
	selectorMismatch
	volumeElsewhere
	taintUntolerated
	portTaken
	lacksRoom
	podAffinity
	podAntiAffinity
	standingAntiAffinity
	topologySpread
	obstacles // how many there are
)

// A placer is what a World says about placement, worked out once: nodes, what runs on them, and the rules of their pods.
// Many simulations share it, one after the other; it is not safe for concurrent use.
type placer struct {
	world   World
	options Options

	sites     []site // every Node, by name
	index     map[string]int
	most      room         // the most that any node has of each resource
	residents [][]resident // by site; finished pods left out
	local     map[string][]resident
	claims    map[types.NamespacedName][]resident

	standing  []*standing
	terms     map[string]*standing
	classes   map[string]*class
	namespace map[string]namespaceLabels
}

// A resident is a pod that runs on a Node and is not finished. A Terminating one holds room, ports and claims and is a
// neighbour until it is gone, as for the scheduler.
type resident struct {
	pod  *corev1.Pod
	site int
}

func newPlacer(w World, o Options) *placer {
	p := &placer{
		world: w, options: o, index: map[string]int{}, local: map[string][]resident{},
		claims: map[types.NamespacedName][]resident{}, terms: map[string]*standing{},
		classes: map[string]*class{}, namespace: map[string]namespaceLabels{},
	}
	for _, n := range w.Nodes() {
		p.sites = append(p.sites, newSite(n))
	}
	sort.Slice(p.sites, func(i, j int) bool { return p.sites[i].name < p.sites[j].name })
	p.residents = make([][]resident, len(p.sites))
	for i := range p.sites {
		p.index[p.sites[i].name] = i
		p.most.widen(&p.sites[i].size)
		for _, pod := range w.PodsOn(p.sites[i].name) {
			if !finished(pod) {
				p.admit(resident{pod, i})
			}
		}
		p.sites[i].populate(p.residents[i], nil)
	}
	return p
}

// admit enters a resident in the indexes.
func (p *placer) admit(r resident) {
	p.residents[r.site] = append(p.residents[r.site], r)
	p.local[r.pod.Namespace] = append(p.local[r.pod.Namespace], r)
	for i := range r.pod.Spec.Volumes {
		if c := r.pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			claim := types.NamespacedName{Namespace: r.pod.Namespace, Name: c.ClaimName}
			p.claims[claim] = append(p.claims[claim], r)
		}
	}
	p.stand(r)
}

// A site is a node that exists, or one that a launcher would bring.
type site struct {
	name   string
	node   *corev1.Node      // for a planned site a made-up one: name, labels and taints
	labels map[string]string // the node's
	size   room              // before any pod
	free   room
	ports  []hostPort
	closed obstacle // fits, or why it takes no pods at all
	// planned is the launcher of a node that does not exist yet; requirements are then its NodePool's, narrowed by the
	// pods seated there, nil for a copy of a node.
	planned      *launcher
	requirements scheduling.Requirements
}

// newSite reads a Node. A node that is cordoned or not Ready is no place, even for a pod that tolerates its taint
// (facts/fate-truth.md C15).
func newSite(n *corev1.Node) site {
	// The kubelet sets the hostname label on every node; trimmed input may lack it.
	if _, ok := n.Labels[corev1.LabelHostname]; !ok {
		labels := maps.Clone(n.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[corev1.LabelHostname] = n.Name
		n = &corev1.Node{ObjectMeta: n.ObjectMeta, Spec: n.Spec, Status: n.Status}
		n.Labels = labels
	}
	st := site{name: n.Name, node: n, labels: n.Labels, size: nodeRoom(n)}
	switch {
	case n.Spec.Unschedulable:
		st.closed = isCordoned
	case !nodeReady(n):
		st.closed = isNotReady
	}
	return st
}

func nodeReady(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// populate counts room and ports of the residents, those in leaving aside.
func (st *site) populate(residents []resident, leaving sets.Set[types.NamespacedName]) {
	st.free, st.ports = st.size.clone(), nil
	if st.closed != fits {
		return
	}
	for _, r := range residents {
		if leaving.Has(nameOf(r.pod)) {
			continue
		}
		needs := residentNeeds(r.pod)
		st.free.take(&needs)
		st.ports = append(st.ports, hostPorts(r.pod)...)
	}
}

// A class is what pods of one template share: how each Node stands to their node selector, affinity and tolerations.
type class struct {
	static   []obstacle // by site, whether or not it takes pods
	admits   []int      // sites without a static obstacle
	affinity nodeaffinity.RequiredNodeAffinity
	selects  bool // there is a node selector or a required node affinity
}

// classOf finds or works out the class of a pod.
func (p *placer) classOf(pod *corev1.Pod) *class {
	key := signature(pod.Spec.NodeSelector, requiredNodeAffinity(pod), pod.Spec.Tolerations)
	if c, ok := p.classes[key]; ok {
		return c
	}
	c := &class{
		static:   make([]obstacle, len(p.sites)),
		affinity: nodeaffinity.GetRequiredNodeAffinity(pod),
		selects:  len(pod.Spec.NodeSelector) > 0 || requiredNodeAffinity(pod) != nil,
	}
	for i := range p.sites {
		switch st := &p.sites[i]; {
		case !c.selected(st):
			c.static[i] = selectorMismatch
		case untolerated(st.node.Spec.Taints, pod.Spec.Tolerations) != nil:
			c.static[i] = taintUntolerated
		default:
			c.admits = append(c.admits, i)
		}
	}
	p.classes[key] = c
	return c
}

// selected says whether the node selector and required node affinity admit the site. A term that cannot be parsed
// matches nothing, as in the scheduler.
func (c *class) selected(st *site) bool {
	if !c.selects {
		return true
	}
	ok, err := c.affinity.Match(st.node)
	return ok && err == nil
}

func requiredNodeAffinity(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// untolerated returns the first taint that keeps a pod away, nil where there is none. PreferNoSchedule never does.
// Comparison operators of tolerations are off, as in a default kube-scheduler 1.37.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	if len(taints) == 0 {
		return nil
	}
	hard := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	taint, found := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), taints, tolerations, hard, false)
	if !found {
		return nil
	}
	return &taint
}

// known returns the values that a label has on the staying Nodes, sorted.
func (s *simulation) known(key string) []string {
	if v, ok := s.values[key]; ok {
		return v
	}
	seen := map[string]bool{}
	for i := range s.sites {
		if v, ok := s.sites[i].labels[key]; ok && s.sites[i].closed != isGoing {
			seen[v] = true
		}
	}
	s.values[key] = sortedKeys(seen)
	return s.values[key]
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// finished says whether the pod has ended; what has ended holds nothing.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
