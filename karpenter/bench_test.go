package karpenter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

const (
	benchRounds = 200
	benchPods   = 10

	bareTaint = "example.com/bare" // acted on by the baseline only; rollcall does not know it
	bareMark  = "example.com/bare-mark"
)

// BenchmarkTaintToMark measures, on a real control plane, the time from sending the request that taints a node to the
// moment when a watcher has seen the marker on the last of its ten bare pods. Beside it, round by round, runs a baseline: a
// watcher that decides nothing and patches ten pods that it was told in advance. The difference is what knowing costs.
func BenchmarkTaintToMark(b *testing.B) {
	l := newLab(b)
	node := l.apiNode()
	var names []string
	for i := range benchPods {
		names = append(names, fmt.Sprintf("bare-%d", i))
		l.barePod(names[i], node)
	}
	l.startController(nil)
	ctx, stop := context.WithCancel(b.Context())
	var baseline sync.WaitGroup
	baseline.Go(func() { l.bareWatcher(ctx, node, names) })
	defer baseline.Wait()
	defer stop()
	watched, err := l.client.CoreV1().Pods(l.namespace).Watch(ctx, metav1.ListOptions{})
	l.must(err)
	defer watched.Stop()

	var rollcall, bare []time.Duration
	for b.Loop() {
		for range benchRounds {
			rollcall = append(rollcall, l.markOnce(node, interruption, domain.AtRisk, watched))
			bare = append(bare, l.markOnce(node, corev1.Taint{Key: bareTaint, Effect: corev1.TaintEffectNoSchedule}, bareMark, watched))
		}
	}
	reportTimes(b, "rollcall", rollcall)
	reportTimes(b, "bare", bare)
	b.ReportMetric(0, "ns/op")
}

// bareWatcher is the baseline: it sees the taint and patches, nothing else.
func (l *lab) bareWatcher(ctx context.Context, node string, pods []string) {
	mark := func(value string) {
		var group sync.WaitGroup
		for _, pod := range pods {
			group.Go(func() {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, bareMark, value)
				_, _ = l.client.CoreV1().Pods(l.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			})
		}
		group.Wait()
	}
	marked := false
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(l.client.CoreV1().RESTClient(), "nodes", "", fields.OneTermEqualSelector("metadata.name", node)),
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, object any) {
			want := slices.ContainsFunc(object.(*corev1.Node).Spec.Taints, func(t corev1.Taint) bool { return t.Key == bareTaint })
			if want != marked {
				marked = want
				mark(map[bool]string{true: `"marked"`, false: "null"}[want])
			}
		}},
	})
	informer.RunWithContext(ctx)
}

// markOnce taints the node, waits until every pod bears the annotation, and returns how long that took. It leaves the node
// without the taint and the pods without the annotation.
func (l *lab) markOnce(node string, taint corev1.Taint, annotation string, watched watch.Interface) time.Duration {
	l.Helper()
	start := time.Now()
	l.setTaints(node, taint)
	l.awaitMarks(watched, annotation, true)
	took := time.Since(start)
	l.setTaints(node)
	l.awaitMarks(watched, annotation, false)
	return took
}

// setTaints replaces the node's taints by these, in one request.
func (l *lab) setTaints(node string, taints ...corev1.Taint) {
	l.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	l.must(err)
	_, err = l.client.CoreV1().Nodes().Patch(l.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

func (l *lab) awaitMarks(watched watch.Interface, annotation string, want bool) {
	l.Helper()
	right := map[string]bool{}
	timeout := time.After(patience)
	for len(right) < benchPods {
		select {
		case event, open := <-watched.ResultChan():
			pod, isPod := event.Object.(*corev1.Pod)
			if !open || !isPod {
				l.Fatalf("the watch ended: %v", event)
			}
			if _, marked := pod.Annotations[annotation]; marked == want {
				right[pod.Name] = true
			} else {
				delete(right, pod.Name)
			}
		case <-timeout:
			l.Fatalf("after %s %d of %d pods have %s=%t", patience, len(right), benchPods, annotation, want)
		}
	}
}

func reportTimes(b *testing.B, who string, times []time.Duration) {
	slices.Sort(times)
	at := func(percent int) float64 {
		return float64(times[(len(times)-1)*percent/100].Microseconds()) / 1000
	}
	b.ReportMetric(at(50), who+"-p50-ms")
	b.ReportMetric(at(99), who+"-p99-ms")
	b.ReportMetric(at(100), who+"-max-ms")
}
