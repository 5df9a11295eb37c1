package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what is true of the cluster at one moment.
type State struct {
	// AtRisk is how many pods bear a marker, by verdict.
	AtRisk map[string]int
	// Nodes is how many nodes are in each state of disruption.
	Nodes map[string]int
}

var (
	atRisk = prometheus.NewDesc("rollcall_pods_at_risk", "Pods that bear the marker now, by verdict. Only the leader has it.", []string{"verdict"}, nil)
	nodes  = prometheus.NewDesc("rollcall_nodes", "Nodes by state of disruption: None, Pending or Committed. Only the leader has it.", []string{"disruption"}, nil)
)

// states are those of DESIGN.md section 2.
var states = []string{"None", "Pending", "Committed"}

// now collects the State when it is asked for.
type now struct {
	mu   sync.Mutex
	read func() State // guarded by mu
}

// Now sets where the State is read from; nil while this replica does not lead, so that a sum over replicas counts nothing
// twice.
func (m *Metrics) Now(read func() State) {
	m.stateOfLeader.mu.Lock()
	defer m.stateOfLeader.mu.Unlock()
	m.stateOfLeader.read = read
}

// Describe implements prometheus.Collector.
func (n *now) Describe(ch chan<- *prometheus.Desc) {
	ch <- atRisk
	ch <- nodes
}

// Collect implements prometheus.Collector.
func (n *now) Collect(ch chan<- prometheus.Metric) {
	n.mu.Lock()
	read := n.read
	n.mu.Unlock()
	if read == nil {
		return
	}
	state := read()
	for _, verdict := range verdicts {
		ch <- prometheus.MustNewConstMetric(atRisk, prometheus.GaugeValue, float64(state.AtRisk[verdict]), verdict)
	}
	for _, s := range states {
		ch <- prometheus.MustNewConstMetric(nodes, prometheus.GaugeValue, float64(state.Nodes[s]), s)
	}
}
