package metrics

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
)

// Names and help texts here are those of Kubernetes' own components, so that dashboards for them work.

// workqueues are the metrics of the queues, by name.
type workqueues struct {
	depth                        *prometheus.GaugeVec
	adds, retries                *prometheus.CounterVec
	latency, duration            *prometheus.HistogramVec
	unfinished, longestProcessor *prometheus.GaugeVec
}

func newWorkqueues() *workqueues {
	const subsystem = "workqueue"
	labels := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: latencies}, labels)
	}
	return &workqueues{
		depth:            gauge("depth", "Current depth of workqueue."),
		adds:             counter("adds_total", "Total number of adds handled by workqueue."),
		retries:          counter("retries_total", "Total number of retries handled by workqueue."),
		latency:          histogram("queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested."),
		duration:         histogram("work_duration_seconds", "How long in seconds processing an item from workqueue takes."),
		unfinished:       gauge("unfinished_work_seconds", "How many seconds of work is in progress and hasn't been observed by work_duration. Large values indicate stuck threads."),
		longestProcessor: gauge("longest_running_processor_seconds", "How many seconds the longest running processor for workqueue has been running."),
	}
}

func (w *workqueues) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.depth, w.adds, w.retries, w.latency, w.duration, w.unfinished, w.longestProcessor}
}

// Queues is client-go's provider, for the configuration of a queue that has a name.
func (m *Metrics) Queues() workqueue.MetricsProvider { return m.workqueues }

func (w *workqueues) NewDepthMetric(name string) workqueue.GaugeMetric {
	return w.depth.WithLabelValues(name)
}

func (w *workqueues) NewAddsMetric(name string) workqueue.CounterMetric {
	return w.adds.WithLabelValues(name)
}

func (w *workqueues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return w.latency.WithLabelValues(name)
}

func (w *workqueues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return w.duration.WithLabelValues(name)
}

func (w *workqueues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.unfinished.WithLabelValues(name)
}

func (w *workqueues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.longestProcessor.WithLabelValues(name)
}

func (w *workqueues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return w.retries.WithLabelValues(name)
}

// requests are the API requests of the process. Client-go has one place for them, so that there is one of them.
var requests = newRequestMetrics()

type requestMetrics struct {
	total, retries *prometheus.CounterVec
	duration       *prometheus.HistogramVec
	limited        *prometheus.HistogramVec
}

func newRequestMetrics() *requestMetrics {
	const subsystem = "rest_client"
	return &requestMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "requests_total",
			Help: "Number of HTTP requests, partitioned by status code and method."}, []string{"code", "method"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "request_retries_total",
			Help: "Number of request retries, partitioned by status code and verb."}, []string{"code", "verb"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: "request_duration_seconds",
			Help: "Request latency in seconds, by verb.", Buckets: latencies}, []string{"verb"}),
		limited: prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: "rate_limiter_duration_seconds",
			Help: "Client side rate limiter latency in seconds, by verb.", Buckets: latencies}, []string{"verb"}),
	}
}

func (r *requestMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.retries, r.duration, r.limited}
}

// WatchRequests makes client-go count the requests of this process. It sets client-go's variables rather than to register:
// only the first registration counts there, and controller-runtime, which Karpenter's API package brings in, makes it while
// the program starts. Call it before any client is made.
func WatchRequests() {
	clientmetrics.RequestResult = results{requests}
	clientmetrics.RequestRetry = results{requests}
	clientmetrics.RequestLatency = durations{requests.duration}
	clientmetrics.RateLimiterLatency = durations{requests.limited}
}

// results adapts counters to client-go. The host is the same for all requests and left out.
type results struct{ *requestMetrics }

func (r results) Increment(_ context.Context, code, method, _ string) {
	r.total.WithLabelValues(code, method).Inc()
}

func (r results) IncrementRetry(_ context.Context, code, verb, _ string) {
	r.retries.WithLabelValues(code, verb).Inc()
}

type durations struct{ *prometheus.HistogramVec }

func (d durations) Observe(_ context.Context, verb string, _ url.URL, latency time.Duration) {
	d.WithLabelValues(verb).Observe(latency.Seconds())
}
