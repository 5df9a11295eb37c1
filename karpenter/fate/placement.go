package fate

import (
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Placement (DESIGN.md section 4) is a simulation: the pods that would be recreated are seated one after the other, each
// taking room from the next. What is counted and what is not is listed in docs/placement.md.
//
// The rules are those of kube-scheduler's filters, by way of k8s.io/component-helpers and, for nodes that do not exist
// yet, sigs.k8s.io/karpenter/pkg/scheduling with the traps of facts/disruption.md 1.6 avoided.

// A seat is the answer for one pod.
type seat struct {
	placement Placement
	// why names the node or NodePool that takes the pod, or the most telling obstacle, in words a person can act on.
	why string
	// later is set without a place: what takes the pod once the Terminating pods on nodes that stay have gone.
	later string
}

// place simulates where the pods find room. pods are those that would be recreated, from all going nodes together. It
// returns one seat per pod, by name, since files may give a UID twice, and changes no object. See placer.place; a placer
// saves work where one World is asked about many sets of going nodes.
func place(w World, going map[string]bool, pods []*corev1.Pod, o Options) map[types.NamespacedName]seat {
	if len(pods) == 0 {
		return map[types.NamespacedName]seat{}
	}
	return newPlacer(w, o).place(going, pods, nil)
}

// place seats the pods, see the function place. leaving are pods on staying nodes that the going ones cost: they hold
// nothing, since they are deleted too. Terminating pods hold their room as they do for the scheduler, which waits for
// them: a pod that only they keep from a place is told so.
func (p *placer) place(going map[string]bool, pods, leaving []*corev1.Pod) map[types.NamespacedName]seat {
	seats := p.placeOnce(going, pods, leaving)
	stranded := func(pod *corev1.Pod) bool { return seats[nameOf(pod)].placement == NoPlace }
	terminating := p.terminating(going)
	if len(terminating) == 0 || !slices.ContainsFunc(pods, stranded) {
		return seats
	}
	later := p.placeOnce(going, pods, slices.Concat(leaving, terminating))
	for name, s := range seats {
		if then := later[name]; s.placement == NoPlace && then.placement != NoPlace {
			s.later = then.why
			seats[name] = s
		}
	}
	return seats
}

// terminating returns the residents of staying nodes that have been asked to stop.
func (p *placer) terminating(going map[string]bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range p.sites {
		if going[p.sites[i].name] {
			continue
		}
		for _, r := range p.residents[i] {
			if r.pod.DeletionTimestamp != nil {
				pods = append(pods, r.pod)
			}
		}
	}
	return pods
}

// placeOnce is one simulation.
//
// Order: highest spec.priority, then largest, then namespace and name. The largest is the pod with the largest share of
// any one resource, measured by the most that any node has of it; equal shares are told apart by cpu, then memory.
// Where several nodes have room the tightest is taken, so that larger gaps stay for the pods that follow.
//
// A pod with affinity or topology spread that found nothing is tried again after others were seated, as the scheduler
// does: the pod that it follows may have come after it.
func (p *placer) placeOnce(going map[string]bool, pods, leaving []*corev1.Pod) map[types.NamespacedName]seat {
	seats := make(map[types.NamespacedName]seat, len(pods))
	s := p.simulate(going, pods, leaving)
	pending := s.guests(pods)
	for progress := true; progress && len(pending) > 0; {
		progress = false
		var retry []*guest
		for _, g := range pending {
			at, ok := s.seat(g)
			switch {
			case ok:
				seats[nameOf(g.pod)], progress = at, true
			case g.follows():
				retry = append(retry, g)
			default:
				seats[nameOf(g.pod)] = seat{placement: NoPlace, why: s.explain(g)}
			}
		}
		pending = retry
	}
	for _, g := range pending {
		seats[nameOf(g.pod)] = seat{placement: NoPlace, why: s.explain(g)}
	}
	return seats
}

// A simulation is the cluster without the going nodes, filling up.
type simulation struct {
	*placer
	going     map[string]bool
	moving    sets.Set[types.NamespacedName] // the pods that leave a staying node, to be placed or lost: they hold nothing there
	sites     []site                         // the placer's, with what this simulation took from them
	seated    []neighbour
	taken     map[types.NamespacedName]types.NamespacedName // ReadWriteOncePod claim → the pod seated with it
	launchers []*launcher                                   // see allLaunchers
	launching bool                                          // launchers are worked out

	tallies map[string]*tally
	spreads map[string]*spread
	against map[*standing]map[string]*corev1.Pod // standing term → topology value → a pod that holds it there
	values  map[string][]string                  // label key → its values on staying Nodes, sorted
}

func (p *placer) simulate(going map[string]bool, pods, leaving []*corev1.Pod) *simulation {
	s := &simulation{
		placer: p, going: going, moving: sets.New[types.NamespacedName](), sites: slices.Clone(p.sites),
		taken:   map[types.NamespacedName]types.NamespacedName{},
		tallies: map[string]*tally{}, spreads: map[string]*spread{},
		against: map[*standing]map[string]*corev1.Pod{}, values: map[string][]string{},
	}
	for i := range s.sites {
		if going[s.sites[i].name] {
			s.sites[i].closed = isGoing
		}
	}
	vacated := map[int]bool{}
	for _, pod := range slices.Concat(pods, leaving) {
		if going[pod.Spec.NodeName] {
			continue
		}
		s.moving.Insert(nameOf(pod))
		if i, ok := p.index[pod.Spec.NodeName]; ok {
			vacated[i] = true
		}
	}
	for i := range vacated {
		s.sites[i].populate(p.residents[i], s.moving)
	}
	return s
}

// stays says whether a resident is still there when the nodes are gone and the pods that leave have left.
func (s *simulation) stays(r resident) bool {
	return s.sites[r.site].closed != isGoing && !s.moving.Has(nameOf(r.pod))
}

// guests works out what each pod needs, in the order in which they are placed.
func (s *simulation) guests(pods []*corev1.Pod) []*guest {
	guests := make([]*guest, 0, len(pods))
	for _, pod := range pods {
		g := s.newGuest(pod)
		g.share = g.needs.share(&s.most)
		guests = append(guests, g)
	}
	sort.Slice(guests, func(i, j int) bool { return guests[i].before(guests[j]) })
	return guests
}

// seat finds a place for the pod and takes it; false where there is none.
func (s *simulation) seat(g *guest) (seat, bool) {
	if s.blocked(g) != "" {
		return seat{}, false
	}
	g.blockers = s.blockers(g.pod)
	// 1. The tightest node that takes the pod.
	if st := s.tightest(g); st != nil {
		s.settle(g, st)
		return seat{placement: FitsNow, why: "fits on " + st.name}, true
	}
	// 2. A node that does not exist yet.
	for _, l := range s.allLaunchers() {
		if st := s.launch(l, g); st != nil {
			s.settle(g, st)
			return seat{placement: NeedsNode, why: "no Ready node takes it now; " + l.name + " can bring one that does"}, true
		}
	}
	return seat{}, false
}

// tightest returns the node with the least cpu, then memory left of those that take the pod, nil where none does.
func (s *simulation) tightest(g *guest) *site {
	var best *site
	for _, i := range g.class.admits {
		st := &s.sites[i]
		if st.closed != fits || best != nil && !st.free.tighter(&best.free) {
			continue
		}
		if s.check(g, st) == fits {
			best = st
		}
	}
	return best
}

// check says what keeps the pod from a site that its class admits. Cheap and frequent obstacles come first.
func (s *simulation) check(g *guest, st *site) obstacle {
	if !st.free.holds(&g.needs) {
		return lacksRoom
	}
	if g.portTaken(st) != nil {
		return portTaken
	}
	if g.volumeElsewhere(st) != nil {
		return volumeElsewhere
	}
	return s.checkNeighbours(g, st)
}

// checkNeighbours is the part of check that depends on other pods.
func (s *simulation) checkNeighbours(g *guest, st *site) obstacle {
	switch {
	case g.affinity != nil && !g.affinity.satisfied(s.placer, g.pod, st):
		return podAffinity
	case g.repelledBy(st) != nil:
		return podAntiAffinity
	case g.blockerOn(st) != nil:
		return standingAntiAffinity
	case g.skewedBy(st) != nil:
		return topologySpread
	}
	return fits
}

// blocked says what keeps the pod from every node, existing or not; empty where nothing does.
func (s *simulation) blocked(g *guest) string {
	if g.problem != "" {
		return g.problem
	}
	for _, claim := range g.exclusive {
		if user, ok := s.userOf(claim); ok {
			return "claim " + claim.Name + " is ReadWriteOncePod and in use by pod " + user.String()
		}
	}
	return ""
}

// userOf names a pod that has the claim, one that stays or one that was seated with it.
func (s *simulation) userOf(claim types.NamespacedName) (types.NamespacedName, bool) {
	for _, r := range s.claims[claim] {
		if s.stays(r) {
			return nameOf(r.pod), true
		}
	}
	user, ok := s.taken[claim]
	return user, ok
}

// settle takes the place: room, ports, claims, and a neighbour for the pods that follow.
func (s *simulation) settle(g *guest, st *site) {
	st.free = st.free.clone()
	st.free.take(&g.needs)
	st.ports = append(slices.Clip(st.ports), g.ports...)
	for _, claim := range g.exclusive {
		s.taken[claim] = nameOf(g.pod)
	}
	s.greet(g.pod, st)
}
