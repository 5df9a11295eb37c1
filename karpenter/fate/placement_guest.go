package fate

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// A guest is a pod to be placed, with what it needs worked out once. Its own spec stands for its successor's;
// spec.nodeName, scheduling gates and the scheduler's name are ignored.
type guest struct {
	pod       *corev1.Pod
	needs     room
	share     float64
	ports     []hostPort
	class     *class
	volumes   []volumeNeed
	exclusive []types.NamespacedName // its ReadWriteOncePod claims
	problem   string                 // what keeps it from every node, for example a claim that is being deleted

	affinity     *tally
	antiAffinity []*tally
	spreads      []spreadNeed
	blockers     []blocker // the anti-affinity of others that is against it; worked out at each attempt

	alternatives []scheduling.Requirements // what a new node must be, any one of them; see newNodeRequirements
	unlaunchable string                    // why no new node can do
	asked        bool                      // alternatives have been worked out
}

func (s *simulation) newGuest(p *corev1.Pod) *guest {
	g := &guest{pod: p, needs: successorNeeds(p), ports: hostPorts(p), class: s.classOf(p)}
	s.readVolumes(g)
	s.readTerms(g)
	g.spreads = s.spreadNeeds(g)
	return g
}

// follows says whether another placement can open a place for the pod that was none before.
func (g *guest) follows() bool { return g.affinity != nil || len(g.spreads) > 0 }

// before is the order of placement, see place.
func (g *guest) before(o *guest) bool {
	if a, b := schedulingcorev1.PodPriority(g.pod), schedulingcorev1.PodPriority(o.pod); a != b {
		return a > b
	}
	switch {
	case g.share != o.share:
		return g.share > o.share
	case g.needs.cpu != o.needs.cpu:
		return g.needs.cpu > o.needs.cpu
	case g.needs.memory != o.needs.memory:
		return g.needs.memory > o.needs.memory
	case g.pod.Namespace != o.pod.Namespace:
		return g.pod.Namespace < o.pod.Namespace
	case g.pod.Name != o.pod.Name:
		return g.pod.Name < o.pod.Name
	}
	return g.pod.UID < o.pod.UID
}

// portTaken returns the port on the site that one of the pod's collides with, nil where none does.
func (g *guest) portTaken(st *site) *hostPort {
	for _, mine := range g.ports {
		for i := range st.ports {
			if mine.conflicts(st.ports[i]) {
				return &st.ports[i]
			}
		}
	}
	return nil
}

func nameOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// signature is a key under which equal parts of pod specs share work.
func signature(parts ...any) string {
	b, err := json.Marshal(parts)
	if err != nil {
		// API types always marshal; were one not to, sharing nothing would be wrong only in cost.
		panic("placement: API types must marshal: " + err.Error())
	}
	return string(b)
}
