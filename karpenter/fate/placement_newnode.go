package fate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// newNodeRequirements is what a node that does not exist yet must be to take the pod: alternatives, any one of which
// will do, or why there is none. Terms are alternatives and each of them counts, where Karpenter's NewPodRequirements
// takes the first alone; a machine's name is a requirement that no new node meets, where Karpenter drops it
// (facts/disruption.md 1.6).
func (g *guest) newNodeRequirements() ([]scheduling.Requirements, string) {
	if !g.asked {
		g.asked = true
		g.alternatives, g.unlaunchable = g.workOutRequirements()
	}
	return g.alternatives, g.unlaunchable
}

func (g *guest) workOutRequirements() ([]scheduling.Requirements, string) {
	// 1. The node selector.
	var selector []corev1.NodeSelectorRequirement
	for key, v := range g.pod.Spec.NodeSelector {
		selector = append(selector, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{v}})
	}
	base, ok := conjunction(corev1.NodeSelectorTerm{MatchExpressions: selector})
	if !ok {
		return nil, "the pod's node selector names one machine"
	}
	all := []scheduling.Requirements{base}
	// 2. Required node affinity.
	if required := requiredNodeAffinity(g.pod); required != nil {
		if all = cross(all, required.NodeSelectorTerms); len(all) == 0 {
			return nil, "the pod's node affinity leaves no new node"
		}
	}
	// 3. Volumes.
	for i := range g.volumes {
		v := &g.volumes[i]
		if v.local {
			return nil, "volume " + v.name + " is on the disk of one machine"
		}
		if v.affinity != nil {
			all = cross(all, v.pv.Spec.NodeAffinity.Required.NodeSelectorTerms)
		}
		for _, key := range sortedKeys(v.zones) {
			all = cross(all, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: key, Operator: corev1.NodeSelectorOpIn, Values: v.zones[key]},
			}}})
		}
		if len(all) == 0 {
			return nil, "volume " + v.name + " cannot follow to a new node"
		}
	}
	return all, ""
}

// cross narrows each alternative by each term; contradictions fall away. An empty term selects nothing.
func cross(alternatives []scheduling.Requirements, terms []corev1.NodeSelectorTerm) []scheduling.Requirements {
	var result []scheduling.Requirements
	for _, term := range terms {
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue
		}
		want, ok := conjunction(term)
		if !ok {
			continue
		}
		for _, a := range alternatives {
			if both, ok := intersect(a, want); ok {
				result = append(result, both)
			}
		}
	}
	return result
}

// intersect is both at once; false where they contradict each other. Karpenter's Add would turn a contradiction into
// "must not exist".
func intersect(a, b scheduling.Requirements) (scheduling.Requirements, bool) {
	if a.Intersects(b) != nil {
		return nil, false
	}
	both := maps.Clone(a)
	both.Add(b.Values()...)
	return both, true
}

// conjunction reads one term for a node whose name is not known yet; false where no such node can match it.
func conjunction(term corev1.NodeSelectorTerm) (scheduling.Requirements, bool) {
	r := scheduling.NewRequirements()
	for _, e := range term.MatchFields {
		// The only field is metadata.name. A new node has a new name.
		if e.Operator != corev1.NodeSelectorOpNotIn {
			return nil, false
		}
	}
	for _, e := range term.MatchExpressions {
		if !parseable(e.Operator, e.Values) {
			return nil, false
		}
		if e.Key == corev1.LabelHostname {
			if e.Operator != corev1.NodeSelectorOpNotIn && e.Operator != corev1.NodeSelectorOpExists {
				return nil, false
			}
			continue
		}
		key := e.Key
		if isZoneOfDriver(key) {
			key = corev1.LabelTopologyZone
		}
		one := scheduling.NewRequirements(scheduling.NewRequirement(key, e.Operator, slices.Clone(e.Values)...))
		both, ok := intersect(r, one)
		if !ok {
			return nil, false
		}
		r = both
	}
	return r, true
}

// isZoneOfDriver says whether a label is a storage driver's own name for the zone. The driver sets it once the node runs,
// which no NodePool mentions; the providers tell Karpenter the same through NormalizedLabels.
func isZoneOfDriver(key string) bool {
	switch key {
	case "topology.ebs.csi.aws.com/zone", "topology.disk.csi.azure.com/zone", "topology.gke.io/zone":
		return true
	}
	return false
}

// wantsZone names the zones that a volume's PV requires, for the words; empty where it requires none.
func (n *volumeNeed) wantsZone() string {
	var zones []string
	if n.affinity != nil {
		for _, term := range n.pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				normal, ok := karpv1.NormalizedLabels[e.Key]
				isZone := e.Key == corev1.LabelTopologyZone || ok && normal == corev1.LabelTopologyZone || isZoneOfDriver(e.Key)
				if isZone && e.Operator == corev1.NodeSelectorOpIn {
					zones = append(zones, e.Values...)
				}
			}
		}
	}
	if len(zones) == 0 {
		zones = slices.Clone(n.zones[corev1.LabelTopologyZone])
	}
	slices.Sort(zones)
	return strings.Join(slices.Compact(zones), " or ")
}
