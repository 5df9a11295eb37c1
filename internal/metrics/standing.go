package metrics

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// standingNamespaces bounds the label namespace: those with the most pods that would be hurt have a series of their own.
const standingNamespaces = 100

// OtherNamespaces stands for all namespaces beyond that. No namespace can bear the name.
const OtherNamespaces = "_other"

// capacityTypes are Karpenter's.
var capacityTypes = set([]string{"spot", "on-demand", "reserved"})

// unknownCapacity is the type of a node that does not tell.
const unknownCapacity = "unknown"

// standingVerdicts are those of pods that somebody would miss. The rest goes with its node by design or is over.
var standingVerdicts = set([]string{"Lost", "Stranded", "Unsure", "Returns"})

// A Stand is what pods are counted by in the standing answer.
type Stand struct{ Namespace, Verdict, CapacityType string }

var standingDesc = prometheus.NewDesc("rollcall_standing_pods",
	"Pods of healthy nodes by what becomes of them if their node goes alone (rules 1 to 13, no placement), by namespace, verdict and capacity type. Renewed every minute. Only the leader has it.",
	[]string{"namespace", "verdict", "capacity_type"}, nil)

// standing is the last standing answer.
type standing struct {
	mu     sync.Mutex
	counts map[Stand]int // guarded by mu
}

// Standing sets the standing answer; nil while this replica does not lead.
func (m *Metrics) Standing(counts map[Stand]int) {
	bounded := boundStanding(counts, standingNamespaces)
	m.standing.mu.Lock()
	defer m.standing.mu.Unlock()
	m.standing.counts = bounded
}

// boundStanding drops verdicts that are not counted and folds what is beyond the bounds into one value. It is pure.
func boundStanding(counts map[Stand]int, namespaces int) map[Stand]int {
	hurt, all := map[string]int{}, map[string]int{}
	for s, n := range counts {
		if !standingVerdicts[s.Verdict] {
			continue
		}
		all[s.Namespace] += n
		if s.Verdict != "Returns" {
			hurt[s.Namespace] += n
		}
	}
	order := make([]string, 0, len(all))
	for name := range all {
		order = append(order, name)
	}
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(hurt[b], hurt[a]), cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	shown := set(order[:min(namespaces, len(order))])
	result := map[Stand]int{}
	for s, n := range counts {
		if !standingVerdicts[s.Verdict] {
			continue
		}
		if !shown[s.Namespace] {
			s.Namespace = OtherNamespaces
		}
		if !capacityTypes[s.CapacityType] {
			s.CapacityType = unknownCapacity
		}
		result[s] += n
	}
	return result
}

// Describe implements prometheus.Collector.
func (s *standing) Describe(ch chan<- *prometheus.Desc) { ch <- standingDesc }

// Collect implements prometheus.Collector.
func (s *standing) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	counts := s.counts // replaced as a whole, never changed
	s.mu.Unlock()
	for stand, n := range counts {
		ch <- prometheus.MustNewConstMetric(standingDesc, prometheus.GaugeValue, float64(n), stand.Namespace, stand.Verdict, stand.CapacityType)
	}
}
