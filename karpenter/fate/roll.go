package fate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Options choose how much of a Roll is worked out.
type Options struct {
	// Now is the time of the question, for activeDeadlineSeconds and the like.
	Now time.Time
	// Place adds the simulation of section 4: placements, and the verdict Stranded for lack of room (rule 14).
	Place bool
	// AssumeGrowth answers NeedsNode where no Ready node has room although no NodePool could launch one: for clusters that
	// cluster-autoscaler grows.
	AssumeGrowth bool
}

// A Roll is the answer for one set of going nodes over one World. It works out only what it is asked for, remembers it,
// and is not safe for concurrent use; neither is a Roll together with those that With made from it. What it returns
// stays the Roll's and must not be changed.
//
//	New(world, going, options)     all nodes that go together
//	roll.On(node)                  fate of every pod on a going node
//	roll.Collateral(node)          pods on staying nodes that this going node costs
//	roll.Inbound(node)             pods on this staying node that going nodes cost, By filled
//	roll.With(departure)           the same question with one more node going
//
// Cost without placement: New is linear in the going nodes, With is constant (each With on top of another adds one step to
// every question whether a node goes). On, Collateral and Inbound are linear in
// the pods of the one node and in what depends on them; what a Job or StatefulSet has elsewhere is read once per World,
// not once per Roll. With Options.Place, the first On of each Roll decides and places the pods of all going nodes.
type Roll struct {
	snap  *snapshot
	going map[string]Departure

	// parent and extra stand for one more going node than the parent has, so that With copies nothing.
	parent *Roll
	extra  Departure

	fates    map[string][]Fate
	dooms    map[objectKey]doom
	outcomes map[*jobFacts]*outcome
	placed   bool
}

// snapshot is what does not depend on the going set: the World and what was read from it, shared by a Roll and all that
// With makes from it.
type snapshot struct {
	World
	options  Options
	nodes    map[string]*corev1.Node
	jobs     map[objectKey]*jobFacts
	sets     map[objectKey]*setFacts
	replicas map[objectKey]int
	budgets  map[string][]budget
	placer   *placer // from the first placement on
}

// objectKey identifies an object among those of its kind, also where an input gave it no UID.
type objectKey struct {
	namespace, name string
	uid             types.UID
}

func keyOf(o metav1.Object) objectKey {
	return objectKey{o.GetNamespace(), o.GetName(), o.GetUID()}
}

// New asks what becomes of pods when the given nodes go, all together. Of two departures of one node the first counts.
func New(w World, going []Departure, o Options) *Roll {
	r := &Roll{
		snap: &snapshot{
			World:    w,
			options:  o,
			jobs:     map[objectKey]*jobFacts{},
			sets:     map[objectKey]*setFacts{},
			replicas: map[objectKey]int{},
			budgets:  map[string][]budget{},
		},
		going: make(map[string]Departure, len(going)),
	}
	for _, d := range going {
		if _, known := r.going[d.Node]; !known {
			r.going[d.Node] = d
		}
	}
	return r
}

// With asks the same question with one more node going. Where that node goes already, the answer is the same.
func (r *Roll) With(d Departure) *Roll {
	if r.goes(d.Node) {
		return r
	}
	return &Roll{snap: r.snap, parent: r, extra: d}
}

// On returns the fate of every pod bound to a going node, by namespace and name; nil for a node that stays.
func (r *Roll) On(node string) []Fate {
	if !r.goes(node) {
		return nil
	}
	if r.snap.options.Place {
		r.placeAll()
	}
	return r.decided(node)
}

// decided returns the fates of a going node's pods by all rules but 14, which needs the pods of all going nodes.
func (r *Roll) decided(node string) []Fate {
	if fates, known := r.fates[node]; known {
		return fates
	}
	departure, _ := r.departure(node)
	pods := r.snap.PodsOn(node)
	fates := make([]Fate, 0, len(pods))
	for _, pod := range pods {
		fates = append(fates, r.snap.fate(pod, r.rule(pod), &departure))
	}
	sortFates(fates)
	if r.fates == nil {
		r.fates = map[string][]Fate{}
	}
	r.fates[node] = fates
	return fates
}

// goes says whether the node is one of those that go.
func (r *Roll) goes(node string) bool {
	_, going := r.departure(node)
	return going
}

func (r *Roll) departure(node string) (Departure, bool) {
	for ; r.parent != nil; r = r.parent {
		if r.extra.Node == node {
			return r.extra, true
		}
	}
	d, going := r.going[node]
	return d, going
}

// goingNodes returns the names of all going nodes, sorted.
func (r *Roll) goingNodes() []string {
	var names []string
	for ; r.parent != nil; r = r.parent {
		names = append(names, r.extra.Node)
	}
	for name := range r.going {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// node returns the Node of that name, or nil.
func (s *snapshot) node(name string) *corev1.Node {
	if s.nodes == nil {
		all := s.Nodes()
		s.nodes = make(map[string]*corev1.Node, len(all))
		for _, n := range all {
			s.nodes[n.Name] = n
		}
	}
	return s.nodes[name]
}

func sortFates(fates []Fate) {
	slices.SortFunc(fates, func(a, b Fate) int {
		return cmp.Or(
			strings.Compare(a.Pod.Namespace, b.Pod.Namespace),
			strings.Compare(a.Pod.Name, b.Pod.Name),
			strings.Compare(string(a.Pod.UID), string(b.Pod.UID)),
		)
	})
}
