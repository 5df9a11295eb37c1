package metrics

import "github.com/prometheus/client_golang/prometheus"

// Held is what is true, at one moment, of the nodes that are held for longer than --held-warning.
type Held struct {
	// Nodes is how many there are, by the reason of their condition.
	Nodes map[string]int
	// Pods are the static pods that they wait for, the most important first; one without a pod for a node that waits for
	// none.
	Pods []HeldPod
}

// A HeldPod is a static pod for which a node is held.
type HeldPod struct{ Node, Namespace, Pod, Reason, Cause string }

// heldPods bounds the series that name pods.
const heldPods = 100

// heldReasons are those of DESIGN.md section 6. Of a node that is held though its condition is True, nobody took the taint.
var heldReasons = []string{"KubeletNotReady", "MirrorMissing", "MirrorStale", "AwaitingRegistration", "NoStaticPods", "AllMirrored"}

var (
	nodesHeld = prometheus.NewDesc("rollcall_nodes_held",
		"Nodes that bear the readiness taint for longer than --held-warning, by the reason of their condition. Only the leader has it.",
		[]string{"reason"}, nil)
	nodeHeldInfo = prometheus.NewDesc("rollcall_node_held_info",
		"The constant 1 for each static pod that such a node waits for, of the 100 that are waited for longest. Only the leader has it.",
		[]string{"node", "namespace", "pod", "reason", "cause"}, nil)
)

// held collects the Held when it is asked for.
type held struct{ leaders[Held] }

// Held sets where the Held is read from; nil while this replica does not lead.
func (m *Metrics) Held(read func() Held) { m.nodesHeld.from(read) }

// Describe implements prometheus.Collector.
func (h *held) Describe(ch chan<- *prometheus.Desc) {
	ch <- nodesHeld
	ch <- nodeHeldInfo
}

// Collect implements prometheus.Collector.
func (h *held) Collect(ch chan<- prometheus.Metric) {
	now, leads := h.value()
	if !leads {
		return
	}
	for _, reason := range heldReasons {
		ch <- prometheus.MustNewConstMetric(nodesHeld, prometheus.GaugeValue, float64(now.Nodes[reason]), reason)
	}
	for _, p := range now.Pods[:min(len(now.Pods), heldPods)] {
		ch <- prometheus.MustNewConstMetric(nodeHeldInfo, prometheus.GaugeValue, 1, p.Node, p.Namespace, p.Pod, p.Reason, p.Cause)
	}
}
