package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/leader"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// A running gate, in this process.
type running struct {
	agent   string // its user agent, which no other has
	client  kubernetes.Interface
	seen    *diary
	metrics *metrics.Metrics
	// stop ends it as SIGTERM does, depose as the loss of the Lease.
	stop, depose func()
}

// A diary is an Observer that remembers.
type diary struct {
	mu        sync.Mutex
	sights    map[string]gate.Sight // the last of each node
	looks     map[string]int
	decisions []gate.Decision
	left      []string
}

func (d *diary) Seen(s gate.Sight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sights[s.Node.Name] = s
	d.looks[s.Node.Name]++
}

func (d *diary) Left(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = append(d.left, node)
}

func (d *diary) Decided(decision gate.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decisions = append(d.decisions, decision)
}

// decided counts the decisions of one kind about a node.
func (d *diary) decided(node, what string) (count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, decision := range d.decisions {
		if decision.Node == node && decision.What == what {
			count++
		}
	}
	return count
}

func (d *diary) looked(node string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.looks[node]
}

// start runs a gate with the defaults, changed by configure, and returns when its caches are synced.
func (l *lab) start(configure func(*gate.Options, *rest.Config)) *running {
	l.Helper()
	r, set, keys := l.prepare(configure)
	l.work(r, set, func(lead context.Context, told <-chan struct{}) error { return keys.Run(lead, told, 4) })
	return r
}

// prepare makes a gate that does not work yet.
func (l *lab) prepare(configure func(*gate.Options, *rest.Config)) (*running, *informers.Set, *queue.Queue) {
	l.Helper()
	config := l.cluster.Config()
	config.UserAgent = fmt.Sprintf("rollcall-gate/%s-%d", l.namespace, time.Now().UnixNano())
	r := &running{
		agent: config.UserAgent, seen: &diary{sights: map[string]gate.Sight{}, looks: map[string]int{}},
		metrics: metrics.New("", nil, func(string) bool { return false }),
	}
	options := gate.Options{
		Taint: readiness.DefaultTaint, Condition: readiness.DefaultCondition, Settle: time.Second, HeldWarning: 5 * time.Minute,
		Queue: queue.New(queue.Options{}), Identity: "test", Observer: r.seen, Metrics: r.metrics,
	}
	if configure != nil {
		configure(&options, config)
	}
	clients := informers.Clients{
		Typed: kubernetes.NewForConfigOrDie(config), Dynamic: dynamic.NewForConfigOrDie(config), Metadata: metadata.NewForConfigOrDie(config),
	}
	set, err := informers.New(clients, informers.Options{})
	l.must(err)
	_, err = gate.New(clients.Typed, set, options)
	l.must(err)
	r.client = clients.Typed
	return r, set, options.Queue
}

// work runs the queue until the gate is stopped or deposed, once.
func (l *lab) work(r *running, set *informers.Set, run leader.Work) {
	l.Helper()
	background, end := context.WithCancel(context.Background())
	lead, lose := context.WithCancel(background)
	told := make(chan struct{})
	var going sync.WaitGroup
	going.Go(func() { set.Run(background) })
	if !cache.WaitForCacheSync(l.Context().Done(), set.Synced) {
		l.Fatal("the caches did not sync")
	}
	worked := make(chan error, 1)
	go func() { worked <- run(lead, told) }()
	var once sync.Once
	finish := func(stop func()) {
		once.Do(func() {
			stop()
			if err := <-worked; err != nil && !errors.Is(err, leader.ErrLost) {
				l.Errorf("the gate ended with %v", err)
			}
			end()
			going.Wait()
			lose()
		})
	}
	r.stop = func() { finish(func() { close(told) }) }
	r.depose = func() { finish(lose) }
	l.Cleanup(r.stop)
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
