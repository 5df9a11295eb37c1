package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/leader"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// A wire is a process's way to the API server. Once it is cut, requests on their way are still served, and nothing comes
// back: what a process sees that was killed, or its network.
type wire struct {
	next   http.RoundTripper
	isCut  *atomic.Bool
	served *atomic.Int32 // releases that were served and whose answer was lost
}

var errCut = errors.New("the wire is cut")

func (w wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if w.isCut.Load() {
		return nil, errCut
	}
	releases := request.Method == http.MethodPatch && says(request, domain.Released)
	response, err := w.next.RoundTrip(request)
	if err == nil && w.isCut.Load() {
		if releases && response.StatusCode == http.StatusOK {
			w.served.Add(1)
		}
		_ = response.Body.Close()
		return nil, errCut
	}
	return response, err
}

// candidate starts a gate that works while it holds the Lease.
func (l *lab) candidate(identity string, isCut *atomic.Bool, served *atomic.Int32) (r *running, leads <-chan struct{}) {
	l.Helper()
	r, set, keys := l.prepare(func(o *gate.Options, config *rest.Config) {
		o.ReleaseTaint = true
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return wire{next, isCut, served} })
	})
	elector := leader.New(r.client, leader.Config{
		Elect: true, Namespace: l.namespace, Name: "gate", Identity: identity,
		Duration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
	})
	began := make(chan struct{})
	l.work(r, set, func(lead context.Context, told <-chan struct{}) error {
		ctx, cancel := context.WithCancel(lead)
		var ending sync.WaitGroup
		defer ending.Wait()
		defer cancel()
		ending.Go(func() {
			select {
			case <-told:
				cancel()
			case <-ctx.Done():
			}
		})
		return elector.Run(ctx, func(lead context.Context, stop <-chan struct{}) error {
			close(began)
			return keys.Run(lead, stop, 4)
		})
	})
	return r, began
}

// joining are nodes that join together, and what was seen of their release.
type joining struct {
	nodes []*node

	mu       sync.Mutex
	complete map[string]time.Time // when the test began to make the last mirror
	released map[string]time.Time // when the taint was first seen gone
	early    []string
}

// see notes each release, and those that are early: before the condition is True, or before the last mirror was made.
func (j *joining) see(object *corev1.Node) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ours := j.complete[object.Name]; !ours || readiness.DefaultTaint.On(object) || !j.released[object.Name].IsZero() {
		return
	}
	j.released[object.Name] = time.Now()
	c := readiness.ConditionOf(object, readiness.DefaultCondition)
	if c == nil || c.Status != corev1.ConditionTrue || j.complete[object.Name].IsZero() || object.Annotations[domain.Released] != string(object.UID) {
		j.early = append(j.early, fmt.Sprintf("%s: condition %v, annotations %v", object.Name, c, object.Annotations))
	}
}

// mirrored has the last mirror of a node made.
func (j *joining) mirrored(n *node) {
	n.Helper()
	j.mu.Lock()
	j.complete[n.name] = time.Now()
	j.mu.Unlock()
	n.mirror("proxy", "p1")
}

func (j *joining) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.released)
}

// The leader is killed in the middle of 20 joining nodes: another takes over, and every node is released exactly once, by
// the audit log, and none early.
func TestLeaderKilledAmongJoiningNodes(t *testing.T) {
	l := newLab(t)
	j := &joining{complete: map[string]time.Time{}, released: map[string]time.Time{}}
	for i := range 20 {
		n := l.node(fmt.Sprint(i))
		n.expect(map[string]string{"proxy": "p1"})
		j.nodes = append(j.nodes, n)
		j.complete[n.name] = time.Time{}
	}
	l.watchNodes(j.see)
	var cut, never atomic.Bool
	var lost atomic.Int32
	first, leads := l.candidate("first", &cut, &lost)
	<-leads
	second, takesOver := l.candidate("second", &never, &lost)

	// Mirrors come one after the other; the leader dies when some nodes are released, some settle and some have none.
	for _, n := range j.nodes[:15] {
		j.mirrored(n)
	}
	l.eventually("some are released", func(context.Context) (bool, error) { return j.count() >= 3, nil })
	cut.Store(true)
	before := j.count()
	first.depose()
	<-takesOver
	for _, n := range j.nodes[15:] {
		j.mirrored(n)
	}
	l.eventually("all are released", func(context.Context) (bool, error) { return j.count() == len(j.nodes), nil })
	second.stop()

	t.Logf("released: %d when the leader was killed, %d whose answer it never got", before, lost.Load())
	if before == len(j.nodes) {
		t.Error("the leader was killed too late to show anything")
	}
	for _, why := range j.early {
		t.Errorf("released early: %s", why)
	}
	releases := map[string]int{}
	for _, r := range []*running{first, second} {
		writes, err := l.cluster.Audited(r.agent)
		l.must(err)
		for _, w := range writes {
			if w.What == "patch nodes" && w.Code == http.StatusOK {
				releases[w.Name]++
			}
		}
	}
	for _, n := range j.nodes {
		if releases[n.name] != 1 {
			t.Errorf("%s was released %d times", n.name, releases[n.name])
		}
	}
}
