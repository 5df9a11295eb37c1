package karpenter_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

// BenchmarkTaintToMark measures the time from the request that taints a node to the marker on its bare pod, as a client
// that watches the pod sees it: the 50th and 99th percentile and the slowest of 200 rounds.
func BenchmarkTaintToMark(b *testing.B) {
	const rounds = 200
	l := newLab(b)
	node := l.apiNode()
	l.barePod("bare", node)
	l.startController(nil)
	watched, err := l.client.CoreV1().Pods(l.namespace).Watch(b.Context(), metav1.ListOptions{FieldSelector: "metadata.name=bare"})
	l.must(err)
	defer watched.Stop()
	until := func(want bool) {
		for event := range watched.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if ok && (pod.Annotations[domain.AtRisk] != "") == want {
				return
			}
		}
		b.Fatal("the watch ended")
	}
	var times []time.Duration
	for b.Loop() {
		for range rounds {
			start := time.Now()
			l.taint(node, true)
			until(true)
			times = append(times, time.Since(start))
			l.taint(node, false)
			until(false)
		}
	}
	slices.Sort(times)
	at := func(percent int) float64 {
		return float64(times[(len(times)-1)*percent/100].Microseconds()) / 1000
	}
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
	b.ReportMetric(at(100), "max-ms")
	b.ReportMetric(0, "ns/op")
}
