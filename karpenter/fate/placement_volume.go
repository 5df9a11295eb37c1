package fate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Volumes hold a pod where their data is. What is not in the World constrains nothing: a running pod's claim exists
// (the pvc-protection finalizer keeps it), so that a claim or volume that cannot be found was only not given. A claim
// without a volume follows its pod, as with volumeBindingMode WaitForFirstConsumer.

// A volumeNeed is a volume of a guest that only some nodes reach.
type volumeNeed struct {
	name     string // the pod's name for it
	pv       *corev1.PersistentVolume
	affinity *nodeaffinity.LazyErrorNodeSelector // nil where the PV has none
	zones    map[string][]string                 // zone and region labels of the PV itself → admitted values
	local    bool                                // on the disk of one machine
}

// readVolumes sets the guest's volumes, exclusive claims and, where one rules out every node, its problem.
func (s *simulation) readVolumes(g *guest) {
	for i := range g.pod.Spec.Volumes {
		v := &g.pod.Spec.Volumes[i]
		// The claim of a generic ephemeral volume dies with the pod; the successor gets one of its own.
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := s.world.PersistentVolumeClaim(g.pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if claim == nil {
			continue
		}
		// 1. A claim that is being deleted goes as soon as no pod uses it. A StatefulSet makes its own anew.
		if claim.DeletionTimestamp != nil {
			if !madeForPod(claim, v, g.pod) {
				g.problem = "claim " + claim.Name + " of volume " + v.Name + " is being deleted"
			}
			continue
		}
		// 2. A claim whose volume is lost is refused by the scheduler.
		if claim.Status.Phase == corev1.ClaimLost {
			g.problem = "claim " + claim.Name + " of volume " + v.Name + " has lost its PersistentVolume " + claim.Spec.VolumeName
			continue
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			g.exclusive = append(g.exclusive, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		if pv := s.world.PersistentVolume(claim.Spec.VolumeName); pv != nil {
			if need := newVolumeNeed(v.Name, pv); need.constrains() {
				g.volumes = append(g.volumes, need)
			}
		}
	}
}

// madeForPod says whether the claim comes from a StatefulSet's volumeClaimTemplates: it is then named TEMPLATE-POD.
func madeForPod(claim *corev1.PersistentVolumeClaim, v *corev1.Volume, pod *corev1.Pod) bool {
	ref := controllerOf(pod)
	return ref != nil && ref.Kind == "StatefulSet" && claim.Name == v.Name+"-"+pod.Name
}

func newVolumeNeed(name string, pv *corev1.PersistentVolume) volumeNeed {
	n := volumeNeed{name: name, pv: pv, local: pv.Spec.Local != nil}
	if pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil {
		n.affinity = nodeaffinity.NewLazyErrorNodeSelector(pv.Spec.NodeAffinity.Required)
	}
	for _, key := range zoneLabels {
		if v, ok := pv.Labels[key]; ok {
			if n.zones == nil {
				n.zones = map[string][]string{}
			}
			// A volume in several zones lists them with this separator (cloud-provider volume helpers).
			n.zones[stableLabel(key)] = strings.Split(v, "__")
		}
	}
	return n
}

func (n *volumeNeed) constrains() bool { return n.affinity != nil || n.zones != nil || n.local }

// zoneLabels are the labels by which a PersistentVolume without node affinity says where it is (kube-scheduler's
// VolumeZone filter).
var zoneLabels = []string{
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
}

func stableLabel(key string) string {
	switch key {
	case corev1.LabelFailureDomainBetaZone:
		return corev1.LabelTopologyZone
	case corev1.LabelFailureDomainBetaRegion:
		return corev1.LabelTopologyRegion
	}
	return key
}

// reaches says whether a node of the site's labels can use the volume. No new node has an old one's disk.
func (n *volumeNeed) reaches(st *site) bool {
	if n.local && st.planned != nil {
		return false
	}
	if n.affinity != nil {
		if ok, err := n.affinity.Match(st.node); !ok || err != nil {
			return false
		}
	}
	for key, values := range n.zones {
		// A node that has no zone at all is in a cluster of one zone.
		if v, ok := st.zone(key); ok && !slices.Contains(values, v) {
			return false
		}
	}
	return true
}

func (st *site) zone(key string) (string, bool) {
	for _, k := range zoneLabels {
		if stableLabel(k) == key {
			if v, ok := st.labels[k]; ok {
				return v, true
			}
		}
	}
	return "", false
}

// volumeElsewhere returns the guest's volume that a node of the site's labels cannot use, nil where there is none.
func (g *guest) volumeElsewhere(st *site) *volumeNeed {
	for i := range g.volumes {
		if !g.volumes[i].reaches(st) {
			return &g.volumes[i]
		}
	}
	return nil
}

// machines are the hostnames that the volume is pinned to, nil where it is not.
func (n *volumeNeed) machines() []string {
	if n.pv.Spec.NodeAffinity == nil || n.pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var names []string
	for _, term := range n.pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			if (e.Key == corev1.LabelHostname || e.Key == "metadata.name") && e.Operator == corev1.NodeSelectorOpIn {
				names = append(names, e.Values...)
			}
		}
	}
	return names
}
