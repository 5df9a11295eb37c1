// Package metrics owns the names, labels and bounds of everything that rollcall exports to Prometheus; docs/metrics.md has
// the same for people, and a test keeps the two together. It counts what it is told and decides nothing.
//
// Labels take values from sets that are bounded whatever a cluster holds: a value from outside becomes "other".
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rollcall-dev/rollcall/internal/build"
)

const namespace = "rollcall"

// Other stands for every label value beyond a bound.
const Other = "other"

// latencies are the buckets of durations in seconds, for work that is over in milliseconds or has gone wrong.
var latencies = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// Metrics are those of one process. Safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	leader        prometheus.Gauge
	marksWritten  *prometheus.CounterVec
	marksCleared  prometheus.Counter
	markLatency   prometheus.Histogram
	signalToMark  prometheus.Histogram
	podsLost      *prometheus.CounterVec
	eventsDropped prometheus.Counter
	eventsFailed  prometheus.Counter
	conditions    *prometheus.CounterVec
	released      prometheus.Counter
	standing      *standing
	nodesHeld     *held
	workqueues    *workqueues
	reasons       map[string]bool
	knows         func(cause string) bool
	stateOfLeader *now
}

// New makes the metrics of a process of that version. reasons are the values that the label may take, knows says it of a
// cause.
func New(version string, reasons []string, knows func(cause string) bool) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		leader:   gauge("leader", "Whether this replica is the one that writes: 1 or 0."),
		marksWritten: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "marks_written_total",
			Help: "Markers written to pods, by verdict."}, []string{"verdict"}),
		marksCleared: counter("marks_cleared_total", "Markers removed from pods."),
		markLatency: histogram("mark_latency_seconds",
			"Time from the moment a signal of disruption reached rollcall to the API server's answer that a pod is marked."),
		signalToMark: histogram("signal_to_mark_seconds",
			"Time from the signal of disruption itself to the API server's answer that a pod is marked. Kubernetes writes signal times in whole seconds, cut off, so that this is up to a second too long; estimated signal times are left out."),
		podsLost: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "pods_lost_total",
			Help: "Marked pods that were really lost, by verdict, reason and cause."}, []string{"verdict", "reason", "cause"}),
		eventsDropped: counter("events_dropped_total", "Events that were not sent because too many waited."),
		eventsFailed:  counter("events_failed_total", "Events that the API server did not take."),
		conditions: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "conditions_written_total",
			Help: "Conditions written to Nodes, by reason."}, []string{"reason"}),
		released:      counter("nodes_released_total", "Nodes from which rollcall took the readiness taint."),
		standing:      &standing{},
		nodesHeld:     &held{},
		workqueues:    newWorkqueues(),
		stateOfLeader: &now{},
		reasons:       set(reasons), knows: knows,
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info",
		Help: "A metric with the constant value 1, and what runs."}, []string{"version", "revision", "goversion"})
	info.WithLabelValues(version, build.Revision(), runtime.Version()).Set(1)
	for _, verdict := range verdicts {
		m.marksWritten.WithLabelValues(verdict) // a series that is there before its first event makes its rate right
	}
	for _, reason := range heldReasons {
		m.conditions.WithLabelValues(reason)
	}
	m.registry.MustRegister(info, m.leader, m.marksWritten, m.marksCleared, m.markLatency, m.signalToMark, m.podsLost,
		m.eventsDropped, m.eventsFailed, m.conditions, m.released, m.standing, m.nodesHeld, m.stateOfLeader, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.workqueues.collectors()...)
	m.registry.MustRegister(requests.collectors()...)
	return m
}

// verdicts are those that may be marked.
var verdicts = []string{"Lost", "Stranded", "Unsure"}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: latencies})
}

func set(values []string) map[string]bool {
	s := make(map[string]bool, len(values))
	for _, v := range values {
		s[v] = true
	}
	return s
}

// bounded is the value where it is one of the known, else Other.
func bounded(value string, known map[string]bool) string {
	if known[value] {
		return value
	}
	return Other
}

// Handler serves the metrics in the formats that Prometheus reads.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, EnableOpenMetrics: true})
}

// Gatherer gives all metrics to tests.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Leading says whether this replica is the one that writes.
func (m *Metrics) Leading(leads bool) {
	value := 0.0
	if leads {
		value = 1
	}
	m.leader.Set(value)
}

// Marked counts a written marker.
func (m *Metrics) Marked(verdict string) {
	m.marksWritten.WithLabelValues(bounded(verdict, set(verdicts))).Inc()
}

// Cleared counts a removed marker.
func (m *Metrics) Cleared() { m.marksCleared.Inc() }

// Reacted takes how long a mark took since the signal reached rollcall.
func (m *Metrics) Reacted(latency time.Duration) { m.markLatency.Observe(latency.Seconds()) }

// Aged takes how old the signal itself was when the pod was marked.
func (m *Metrics) Aged(age time.Duration) { m.signalToMark.Observe(max(0, age.Seconds())) }

// Lost counts a pod that was lost. Its marker may have been forged, so that each value is checked.
func (m *Metrics) Lost(verdict, reason, cause string) {
	if !m.knows(cause) {
		cause = Other
	}
	m.podsLost.WithLabelValues(bounded(verdict, set(verdicts)), bounded(reason, m.reasons), cause).Inc()
}

// ConditionWritten counts a condition that was written to a Node.
func (m *Metrics) ConditionWritten(reason string) {
	m.conditions.WithLabelValues(bounded(reason, set(heldReasons))).Inc()
}

// NodeReleased counts a Node from which the readiness taint was taken.
func (m *Metrics) NodeReleased() { m.released.Inc() }

// EventDropped counts an Event that was not sent because too many waited.
func (m *Metrics) EventDropped() { m.eventsDropped.Inc() }

// EventFailed counts an Event that the API server did not take.
func (m *Metrics) EventFailed() { m.eventsFailed.Inc() }

// Counts are counters that others keep; each is read when the metrics are. They never fall.
type Counts struct {
	RecordsDropped, RecordsFailed func() int64
}

// Count exports counters that others keep. Call it once.
func (m *Metrics) Count(c Counts) {
	for _, f := range []struct {
		name, help string
		read       func() int64
	}{
		{"loss_records_dropped_total", "PodLoss records that were not written because there was no room for them.", c.RecordsDropped},
		{"loss_record_errors_total", "Writes of PodLoss records that failed; most are tried again.", c.RecordsFailed},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Namespace: namespace, Name: f.name, Help: f.help}, func() float64 { return float64(f.read()) }))
	}
}
