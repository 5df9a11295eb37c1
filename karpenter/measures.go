package karpenter

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// standingEvery is how often the standing answer is counted: it looks at every pod, and changes slowly.
const standingEvery = time.Minute

// standingAfter keeps the first count out of the way of what is urgent when a leader starts.
const standingAfter = 5 * time.Second

// reasons are all that a marker may give.
var reasons = []string{
	string(fate.NoController), string(fate.OwnerGone), string(fate.OwnerIsNoController), string(fate.OwnerDeleting),
	string(fate.OwnerScaledDown), string(fate.JobFinished), string(fate.JobSuspended), string(fate.JobWillNotRetry),
	string(fate.OwnerPodLost), string(fate.NoRetryStrategy), string(fate.BlockedByFinalizer), string(fate.NoPlaceLeft),
}

// NewMetrics makes the metrics of a process of that version. The labels that come from markers take the values that the
// configuration knows.
func NewMetrics(version string, config *Config) *metrics.Metrics {
	return metrics.New(version, reasons, config.knows)
}

// measure keeps the metrics that only the leader has, until told closes.
func (c *Controller) measure(lead context.Context, told <-chan struct{}) {
	m := c.options.Metrics
	m.Leading(true)
	m.Now(c.state)
	defer func() {
		m.Leading(false)
		m.Now(nil)
		m.Standing(nil)
	}()
	next := time.NewTimer(standingAfter)
	defer next.Stop()
	for {
		select {
		case <-lead.Done():
			return
		case <-told:
			return
		case <-next.C:
		}
		counts, rows := c.standing(c.options.Clock())
		m.Standing(counts)
		c.show.stand(rows)
		next.Reset(standingEvery)
	}
}

// state is what is true of the cluster now, by the caches.
func (c *Controller) state() metrics.State {
	s := metrics.State{AtRisk: map[string]int{}, Nodes: c.memory.states()}
	for _, node := range c.informers.Pods().GetIndexer().ListIndexFuncValues(markedFor) {
		for _, marker := range c.markersOf(node)() {
			s.AtRisk[string(marker.Verdict)]++
		}
	}
	s.Nodes[string(None)] = max(0, len(c.informers.Nodes().GetIndexer().ListKeys())-s.Nodes[string(Pending)]-s.Nodes[string(Committed)])
	return s
}

// standing counts what becomes of the pods of each healthy node if it goes too (DESIGN.md section 5): by rules 1 to 13,
// from the caches alone. The rows are of the nodes with pods that would not come back, by name.
func (c *Controller) standing(now time.Time) (counts map[metrics.Stand]int, rows map[string]*stream.Standing) {
	view := newView(c.informers, c.owners, nil)
	going := c.going(now)
	departures := make([]fate.Departure, 0, len(going))
	for _, g := range going {
		departures = append(departures, g.d.Departure(g.node))
	}
	roll := fate.New(view, departures, fate.Options{Now: now})
	counts, rows = map[metrics.Stand]int{}, map[string]*stream.Standing{}
	for _, node := range view.Nodes() {
		if _, goes := going[node.Name]; goes {
			continue
		}
		for _, f := range roll.With(fate.Departure{Node: node.Name}).On(node.Name) {
			counts[metrics.Stand{Namespace: f.Pod.Namespace, Verdict: string(f.Verdict), CapacityType: capacityType(node)}]++
			note(rows, node, f)
		}
	}
	return counts, rows
}

// capacityLabels are how others than Karpenter say that their capacity may be taken back, or not: EKS, GKE, AKS.
var capacityLabels = []struct{ key, value, means string }{
	{"eks.amazonaws.com/capacityType", "SPOT", karpv1.CapacityTypeSpot},
	{"eks.amazonaws.com/capacityType", "ON_DEMAND", karpv1.CapacityTypeOnDemand},
	{"cloud.google.com/gke-spot", "true", karpv1.CapacityTypeSpot},
	{"cloud.google.com/gke-preemptible", "true", karpv1.CapacityTypeSpot},
	{"kubernetes.azure.com/scalesetpriority", "spot", karpv1.CapacityTypeSpot},
	{"kubernetes.azure.com/scalesetpriority", "regular", karpv1.CapacityTypeOnDemand},
}

// capacityType is the node's in Karpenter's words; empty where it does not tell.
func capacityType(node *corev1.Node) string {
	if own := node.Labels[karpv1.CapacityTypeLabelKey]; own != "" {
		return own
	}
	for _, label := range capacityLabels {
		if node.Labels[label.key] == label.value {
			return label.means
		}
	}
	return ""
}
