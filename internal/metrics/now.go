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

// A leaders value is read when the metrics are collected, and only while this replica leads: a sum over replicas counts
// nothing twice.
type leaders[T any] struct {
	mu   sync.Mutex
	read func() T // guarded by mu; nil while this replica does not lead
}

func (l *leaders[T]) from(read func() T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read = read
}

func (l *leaders[T]) value() (value T, leads bool) {
	l.mu.Lock()
	read := l.read
	l.mu.Unlock()
	if read == nil {
		return value, false
	}
	return read(), true
}

// now collects the State when it is asked for.
type now struct{ leaders[State] }

// Now sets where the State is read from; nil while this replica does not lead.
func (m *Metrics) Now(read func() State) { m.stateOfLeader.from(read) }

// Describe implements prometheus.Collector.
func (n *now) Describe(ch chan<- *prometheus.Desc) {
	ch <- atRisk
	ch <- nodes
}

// Collect implements prometheus.Collector.
func (n *now) Collect(ch chan<- prometheus.Metric) {
	state, leads := n.value()
	if !leads {
		return
	}
	for _, verdict := range verdicts {
		ch <- prometheus.MustNewConstMetric(atRisk, prometheus.GaugeValue, float64(state.AtRisk[verdict]), verdict)
	}
	for _, s := range states {
		ch <- prometheus.MustNewConstMetric(nodes, prometheus.GaugeValue, float64(state.Nodes[s]), s)
	}
}
