package fate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// obstacleWords say what an obstacle is where nodes are counted: "2 lack cpu".
var obstacleWords = [obstacles]string{
	isGoing: "going", isNotReady: "not Ready", isCordoned: "cordoned",
	selectorMismatch: "not selected by the pod's node selector or affinity",
	volumeElsewhere:  "out of reach of its volume", taintUntolerated: "with a taint it does not tolerate",
	portTaken: "with its host port taken", lacksRoom: "without room", podAffinity: "without the pods it needs beside it",
	podAntiAffinity: "with pods it must not be beside", standingAntiAffinity: "with pods that refuse it",
	topologySpread: "against its topology spread",
}

// explain says in one sentence why the pod finds no place: the single most telling obstacle on the nodes, then what
// keeps each NodePool from helping.
func (s *simulation) explain(g *guest) string {
	if why := s.blocked(g); why != "" {
		return why
	}
	return s.explainNodes(g) + s.explainLaunchers(g)
}

// A survey is how each Node stands to one guest.
type survey struct {
	found [obstacles][]*site
	// matching are the closed nodes that it selects and whose volumes it reaches. Their taints say only that they go.
	matching [obstacles][]*site
	open     int
}

func (s *simulation) survey(g *guest) survey {
	var v survey
	for i := range s.sites {
		st := &s.sites[i]
		why := g.class.static[i]
		if st.closed != fits {
			if why != selectorMismatch && g.volumeElsewhere(st) == nil {
				v.matching[st.closed] = append(v.matching[st.closed], st)
			}
			v.found[st.closed] = append(v.found[st.closed], st)
			continue
		}
		v.open++
		if why == fits && g.volumeElsewhere(st) != nil {
			why = volumeElsewhere
		} else if why == fits {
			why = s.check(g, st)
		}
		v.found[why] = append(v.found[why], st)
	}
	return v
}

func (s *simulation) explainNodes(g *guest) string {
	v := s.survey(g)
	// 1. A volume that is somewhere else.
	if n := s.heldBy(g, &v); n != "" {
		return n
	}
	// 2. It selects nodes, and none of them is open.
	if g.class.selects && len(v.found[selectorMismatch]) == v.open {
		return explainSelection(g, &v)
	}
	// 3. Nothing to choose from.
	if v.open == 0 {
		return "no other node is Ready and schedulable" + v.counts(g, " (", ")")
	}
	// 4. One obstacle on all nodes that it selects.
	if why, ok := v.single(); ok {
		return s.describeAll(why, g, v.found[why])
	}
	return fmt.Sprintf("0 of %d nodes: ", len(s.sites)) + v.counts(g, "", "")
}

// heldBy is the answer for a pod that its volume keeps from every open node.
func (s *simulation) heldBy(g *guest, v *survey) string {
	if len(v.found[volumeElsewhere]) == 0 || len(v.found[volumeElsewhere])+len(v.found[selectorMismatch]) < v.open {
		return ""
	}
	return describeVolume(g.volumeElsewhere(v.found[volumeElsewhere][0]))
}

func describeVolume(n *volumeNeed) string {
	if names := n.machines(); len(names) > 0 {
		return "volume " + n.name + " is on the disk of " + strings.Join(names, ", ")
	}
	if zones := n.wantsZone(); zones != "" {
		return "needs zone " + zones + " for volume " + n.name + "; no Ready node there"
	}
	return "volume " + n.name + " cannot be reached from any Ready node"
}

// explainSelection is the answer where the nodes that the pod selects take no pods, or there are none.
func explainSelection(g *guest, v *survey) string {
	closed := present(&v.matching)
	if len(closed) == 0 {
		return "no node matches " + selectedBy(g.pod)
	}
	if len(closed) == 1 && closed[0] == isGoing {
		return "the only nodes that match " + selectedBy(g.pod) + " are going: " + nodeNames(v.matching[isGoing])
	}
	var parts []string
	for _, why := range closed {
		parts = append(parts, obstacleWords[why]+": "+nodeNames(v.matching[why]))
	}
	return "the only nodes that match " + selectedBy(g.pod) + " take no pods (" + strings.Join(parts, "; ") + ")"
}

// selectedBy names what the pod selects nodes by.
func selectedBy(pod *corev1.Pod) string {
	var parts []string
	if len(pod.Spec.NodeSelector) > 0 {
		var pairs []string
		for _, k := range sortedKeys(pod.Spec.NodeSelector) {
			pairs = append(pairs, k+"="+pod.Spec.NodeSelector[k])
		}
		parts = append(parts, "its node selector "+strings.Join(pairs, ","))
	}
	if requiredNodeAffinity(pod) != nil {
		parts = append(parts, "its node affinity")
	}
	return strings.Join(parts, " and ")
}

// single is the one obstacle of all open nodes that the pod selects, if there is but one.
func (v *survey) single() (obstacle, bool) {
	var one []obstacle
	for _, why := range present(&v.found) {
		if why > isCordoned && why != selectorMismatch {
			one = append(one, why)
		}
	}
	if len(one) != 1 {
		return fits, false
	}
	return one[0], true
}

// counts lists how many nodes fail and how, in the obstacles' order, between the given words; empty without nodes.
func (v *survey) counts(g *guest, before, after string) string {
	var parts []string
	for _, why := range present(&v.found) {
		if why == lacksRoom {
			parts = append(parts, lacks(g, v.found[why])...)
			continue
		}
		parts = append(parts, fmt.Sprintf("%d %s", len(v.found[why]), obstacleWords[why]))
	}
	if len(parts) == 0 {
		return ""
	}
	return before + strings.Join(parts, ", ") + after
}

// present lists the obstacles that some node has, in their order.
func present(by *[obstacles][]*site) []obstacle {
	var some []obstacle
	for why, sites := range by {
		if len(sites) > 0 {
			some = append(some, obstacle(why))
		}
	}
	return some
}

// nodeNames lists up to three nodes.
func nodeNames(sites []*site) string {
	var all []string
	for i, st := range sites {
		if i == 3 {
			all = append(all, fmt.Sprintf("and %d more", len(sites)-3))
			break
		}
		all = append(all, st.name)
	}
	return strings.Join(all, ", ")
}

// describeAll words one obstacle that all the nodes share.
func (s *simulation) describeAll(why obstacle, g *guest, sites []*site) string {
	if why == lacksRoom {
		return mostFree(g, sites)
	}
	if len(sites) == 1 {
		return s.describe(why, g, sites[0])
	}
	return s.describe(why, g, sites[0]) + fmt.Sprintf(", and likewise on %d more", len(sites)-1)
}

// mostFree says what is lacking and where most of it is left. Where the nodes lack different things it says which.
func mostFree(g *guest, sites []*site) string {
	lacking := sites[0].free.lacking(&g.needs)
	best := sites[0]
	for _, st := range sites {
		if st.free.lacking(&g.needs) != lacking {
			return fmt.Sprintf("0 of %d Ready nodes have room: ", len(sites)) + strings.Join(lacks(g, sites), ", ")
		}
		if st.free.amount(lacking) > best.free.amount(lacking) {
			best = st
		}
	}
	if lacking == corev1.ResourcePods {
		return "no pod slot is left on " + nodeNames(sites)
	}
	return fmt.Sprintf("needs %s %s; most free on a Ready node is %s (%s)", quantity(lacking, g.needs.amount(lacking)), lacking,
		quantity(lacking, max(best.free.amount(lacking), 0)), best.name)
}

// lacks counts the nodes by the first resource that they lack: "2 lack cpu".
func lacks(g *guest, sites []*site) []string {
	count := map[corev1.ResourceName]int{}
	for _, st := range sites {
		count[st.free.lacking(&g.needs)]++
	}
	var parts []string
	for _, name := range sortedKeys(count) {
		verb := "lack"
		if count[name] == 1 {
			verb = "lacks"
		}
		parts = append(parts, fmt.Sprintf("%d %s %s", count[name], verb, name))
	}
	return parts
}

// describe words an obstacle on one node.
func (s *simulation) describe(why obstacle, g *guest, st *site) string {
	switch why {
	case portTaken:
		p := g.portTaken(st)
		return fmt.Sprintf("host port %d/%s is taken on %s by %s", p.port, p.protocol, st.name, p.pod)
	case lacksRoom:
		return mostFree(g, []*site{st})
	case volumeElsewhere:
		return describeVolume(g.volumeElsewhere(st))
	case taintUntolerated:
		return "does not tolerate taint " + untolerated(st.node.Spec.Taints, g.pod.Spec.Tolerations).ToString() + " of " + st.name
	case podAffinity:
		return "needs pods beside it that are not there (affinity by " + g.affinity.terms[0].key + ")"
	case podAntiAffinity:
		return "must not be beside " + s.offender(g.repelledBy(st), st) + " on " + st.name + " (anti-affinity by " + g.repelledBy(st).key + ")"
	case standingAntiAffinity:
		return "pod " + nameOf(g.blockerOn(st)).String() + " refuses it on " + st.name + " (anti-affinity of that pod)"
	case topologySpread:
		return "topology spread over " + g.skewedBy(st).spread.key + " does not allow " + st.name
	}
	return obstacleWords[why]
}

// offender names a pod in the site's domain that the term repels.
func (s *simulation) offender(t *podTerm, st *site) string {
	name := "pods"
	s.eachNeighbour(nil, func(pod *corev1.Pod, at *site) {
		if name == "pods" && at.labels[t.key] == st.labels[t.key] && t.matches(s.placer, pod) {
			name = "pod " + nameOf(pod).String()
		}
	})
	return name
}

// explainLaunchers says what keeps NodePools, or growth, from helping.
func (s *simulation) explainLaunchers(g *guest) string {
	if len(s.allLaunchers()) == 0 {
		return ", no NodePool"
	}
	if _, why := g.newNodeRequirements(); why != "" {
		return ", and no new node can be what it asks for"
	}
	var parts []string
	for _, l := range s.allLaunchers() {
		if l.only != "" && l.only != g.pod.Spec.NodeName {
			continue
		}
		why := s.refusal(l, g)
		if why == "" && l.nodes <= 0 {
			why = "has reached its limit of nodes"
		}
		if why == "" {
			if _, why = s.plan(l, g); why == "" {
				why = "has no room left on the nodes it may bring"
			}
		}
		parts = append(parts, l.name+": "+why)
		if len(parts) == 3 {
			break
		}
	}
	return "; " + strings.Join(parts, "; ")
}
