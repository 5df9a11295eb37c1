package gate_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

const (
	joinNodes = 1000
	// atOnce is how many requests of the test's own are under way: its kubelets share one API server with what is measured.
	atOnce = 16
	// joinPatience bounds the wait for all of them.
	joinPatience = 10 * time.Minute
	// bareCondition is what the baseline writes.
	bareCondition = "example.com/Bare"
)

// BenchmarkJoin has 1,000 nodes join at once: each is there with its published set, held, and all mirrors are made as fast
// as the API server takes them. It reports the time from each last mirror to the condition that says so, and the requests
// that this costs per node; for the gate, and for a bare watcher that patches as soon as it sees a mirror, which waits for
// nothing and checks nothing.
func BenchmarkJoin(b *testing.B) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	defer slog.SetDefault(before)
	for range b.N {
		for _, runner := range []struct {
			name, condition string
			settle          time.Duration
			start           func(*lab, *atomic.Int64) (stop func())
		}{
			{"gate", readiness.DefaultCondition, time.Second, startGate},
			{"bare", bareCondition, 0, startBare},
		} {
			j := newJoin(b, runner.condition)
			stop := runner.start(j.lab, &j.requests)
			j.run()
			stop()
			j.report(runner.name, runner.settle)
		}
	}
}

// counting counts the requests that are no lists and no watches.
func counting(config *rest.Config, requests *atomic.Int64) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet || request.URL.RawQuery == "" {
				requests.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
}

func startGate(l *lab, requests *atomic.Int64) (stop func()) {
	return l.start(func(_ *gate.Options, config *rest.Config) { counting(config, requests) }).stop
}

// startBare is the baseline: 4 workers, as the controller has.
func startBare(l *lab, requests *atomic.Int64) (stop func()) {
	config := l.cluster.Config()
	counting(config, requests)
	client := kubernetes.NewForConfigOrDie(config)
	factory := clientinformers.NewSharedInformerFactoryWithOptions(client, 0, clientinformers.WithNamespace(l.namespace))
	mirrors := make(chan *corev1.Pod, joinNodes)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { mirrors <- object.(*corev1.Pod) },
	})
	l.must(err)
	told := make(chan struct{})
	factory.Start(told)
	const patch = `{"status":{"conditions":[{"type":"` + bareCondition + `","status":"True","reason":"Mirrored"}]}}`
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for pod := range mirrors {
				if _, err := client.CoreV1().Nodes().Patch(context.Background(), pod.Spec.NodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
					l.Errorf("the baseline cannot write: %v", err)
				}
			}
		})
	}
	return func() {
		close(told)
		factory.Shutdown()
		close(mirrors)
		working.Wait()
	}
}

// A join is one lab's nodes that join, and when what was seen of them.
type join struct {
	*lab
	condition string
	requests  atomic.Int64
	nodes     []*node

	mu       sync.Mutex
	held     map[string]bool      // by node; whether the condition was seen not to be True
	mirrored map[string]time.Time // when the API server had taken the last mirror
	isTrue   map[string]time.Time // when the condition was seen to be True
}

func newJoin(b *testing.B, condition string) *join {
	j := &join{lab: newLab(b), condition: condition, held: map[string]bool{}, mirrored: map[string]time.Time{}, isTrue: map[string]time.Time{}}
	for i := range joinNodes {
		n := j.named(fmt.Sprint(i))
		j.nodes = append(j.nodes, n)
		j.held[n.name] = false
	}
	return j
}

// run has the nodes made, held, and mirrored, and waits until all conditions are True.
func (j *join) run() {
	j.watchNodes(j.see)
	uids := make([]types.UID, len(j.nodes))
	j.each(func(ctx context.Context, n *node) error {
		set, err := n.set(boot, map[string]string{"proxy": "p1"})
		if err != nil {
			return err
		}
		object := n.fresh()
		object.Annotations = map[string]string{readiness.StaticPodsAnnotation: set}
		made, err := j.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
		if err == nil {
			uids[slices.Index(j.nodes, n)] = made.UID
		}
		return err
	})
	if j.condition == readiness.DefaultCondition {
		j.await("held", func() (held int) {
			for _, is := range j.held {
				if is {
					held++
				}
			}
			return held
		})
	}
	j.each(func(ctx context.Context, n *node) error {
		_, err := j.client.CoreV1().Pods(j.namespace).Create(ctx, n.mirrorOf(uids[slices.Index(j.nodes, n)], "proxy", "p1"), metav1.CreateOptions{})
		j.mu.Lock()
		j.mirrored[n.name] = time.Now()
		j.mu.Unlock()
		return err
	})
	j.await("True", func() int { return len(j.isTrue) })
}

// see notes what becomes of the nodes.
func (j *join) see(object *corev1.Node) {
	now, c := time.Now(), readiness.ConditionOf(object, j.condition)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch _, ours := j.held[object.Name]; {
	case !ours || c == nil:
	case c.Status != corev1.ConditionTrue:
		j.held[object.Name] = true
	case j.isTrue[object.Name].IsZero():
		j.isTrue[object.Name] = now
	}
}

// await waits until count, which is read under the lock, has come to all nodes.
func (j *join) await(what string, count func() int) {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) { // not what is measured: times are taken as events come
		j.mu.Lock()
		got := count()
		j.mu.Unlock()
		if got == len(j.nodes) {
			return
		}
		if time.Since(start) > joinPatience {
			j.Fatalf("%d of %d nodes are %s", got, len(j.nodes), what)
		}
	}
}

// each does something for every node, several at a time.
func (j *join) each(do func(context.Context, *node) error) {
	work := make(chan *node)
	var working sync.WaitGroup
	for range atOnce {
		working.Go(func() {
			for n := range work {
				if err := do(context.Background(), n); err != nil {
					j.Errorf("%s: %v", n.name, err)
				}
			}
		})
	}
	for _, n := range j.nodes {
		work <- n
	}
	close(work)
	working.Wait()
}

// report gives the figures of one runner. What the gate waits on purpose is in its times, and given by itself.
func (j *join) report(runner string, settle time.Duration) {
	var late []time.Duration
	for _, n := range j.nodes {
		late = append(late, j.isTrue[n.name].Sub(j.mirrored[n.name]))
	}
	slices.Sort(late)
	b := j.TB.(*testing.B)
	for percent, unit := range map[int]string{50: "p50-ms", 99: "p99-ms"} {
		at := late[(len(late)-1)*percent/100]
		b.ReportMetric(float64(at.Microseconds())/1000, runner+"-"+unit)
		if settle > 0 {
			b.ReportMetric(float64((at-settle).Microseconds())/1000, runner+"-"+unit+"-beyond-settle")
		}
	}
	b.ReportMetric(float64(j.requests.Load())/float64(len(j.nodes)), runner+"-requests/node")
}
