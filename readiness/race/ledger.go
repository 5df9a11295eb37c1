package race

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/readiness"
)

// outOfCPU is the reason with which a kubelet refuses a pod (k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go).
const outOfCPU = "OutOfcpu"

// ledger has what the API showed of a race, since before its first node.
type ledger struct {
	namespace string // of the Deployment
	prefix    string // of the nodes
	cancel    context.CancelFunc
	factory   informers.SharedInformerFactory

	mu      sync.Mutex
	pods    map[string]*corev1.Pod // guarded by mu; the Deployment's, also those that are gone again
	mirrors map[string]string      // guarded by mu; namespace/name to the revision that first had it
	joined  map[string]*joined     // guarded by mu
}

// joined is a node of the race.
type joined struct {
	tainted  bool   // it was seen with the taint
	missed   bool   // its condition was seen False, MirrorMissing
	released string // the first revision without the taint after one with it
	state    string // its condition, as seen last
}

func newLedger(name string) *ledger {
	return &ledger{
		namespace: name, prefix: name + "-",
		pods: map[string]*corev1.Pod{}, mirrors: map[string]string{}, joined: map[string]*joined{},
	}
}

// openLedger begins to watch. It returns when it would see a node that joins.
func openLedger(ctx context.Context, client kubernetes.Interface, name string) (*ledger, error) {
	l := newLedger(name)
	l.factory = informers.NewSharedInformerFactory(client, 0)
	ctx, l.cancel = context.WithCancel(ctx)
	nodes, pods := l.factory.Core().V1().Nodes().Informer(), l.factory.Core().V1().Pods().Informer()
	for informer, see := range map[cache.SharedIndexInformer]func(any){nodes: l.seeNode, pods: l.seePod} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, object any) { see(object) },
		}); err != nil {
			l.cancel()
			return nil, err
		}
	}
	l.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		l.close()
		return nil, fmt.Errorf("beginning to watch: %w", context.Cause(ctx))
	}
	return l, nil
}

func (l *ledger) close() {
	l.cancel()
	l.factory.Shutdown()
}

func (l *ledger) seePod(object any) {
	pod := object.(*corev1.Pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	key := pod.Namespace + "/" + pod.Name
	switch {
	case pod.Namespace == l.namespace:
		l.pods[key] = pod
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "" && l.mirrors[key] == "":
		l.mirrors[key] = pod.ResourceVersion
	}
}

func (l *ledger) seeNode(object any) {
	node := object.(*corev1.Node)
	if !strings.HasPrefix(node.Name, l.prefix) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.joined[node.Name]
	if n == nil {
		n = &joined{}
		l.joined[node.Name] = n
	}
	held := readiness.DefaultTaint.On(node)
	n.tainted = n.tainted || held
	if n.tainted && !held && n.released == "" {
		n.released = node.ResourceVersion
	}
	n.state = "no condition"
	if c := readiness.ConditionOf(node, readiness.DefaultCondition); c != nil {
		n.state = fmt.Sprintf("%s %s", c.Status, c.Reason)
		n.missed = n.missed || held && c.Status == corev1.ConditionFalse && c.Reason == readiness.MirrorMissing
	}
}

// countPods counts the Deployment's pods that are so.
func (l *ledger) countPods(is func(*corev1.Pod) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pod := range l.pods {
		if is(pod) {
			n++
		}
	}
	return n
}

func (l *ledger) failed() int {
	return l.countPods(func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
}

// refused counts the pods that a kubelet refused, by node.
func (l *ledger) refused() map[string]int {
	perNode := map[string]int{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pod := range l.pods {
		if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == outOfCPU {
			perNode[pod.Spec.NodeName]++
		}
	}
	return perNode
}

func (l *ledger) running() int {
	return l.countPods(func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
}

// pending counts the pods that have no node.
func (l *ledger) pending() int {
	return l.countPods(func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending && p.Spec.NodeName == "" })
}

// countNodes counts the nodes that are so.
func (l *ledger) countNodes(is func(*joined) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, node := range l.joined {
		if is(node) {
			n++
		}
	}
	return n
}

func (l *ledger) nodes() int { return l.countNodes(func(*joined) bool { return true }) }
func (l *ledger) released() int {
	return l.countNodes(func(n *joined) bool { return n.released != "" })
}
func (l *ledger) heldNodes() int { return l.countNodes(func(n *joined) bool { return n.missed }) }

// allHeld tells whether each of the nodes was seen held for a mirror that is missing.
func (l *ledger) allHeld(names []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if n := l.joined[name]; n == nil || !n.missed {
			return false
		}
	}
	return true
}

// count writes what was seen into the result; mirrors are those that each node has to have.
func (l *ledger) count(result *Result, mirrors map[string][]string) {
	result.Failed, result.Running, result.Pending = l.failed(), l.running(), l.pending()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.joined)) {
		released := l.joined[name].released
		if released == "" {
			continue
		}
		result.Released = append(result.Released, name)
		if slices.ContainsFunc(mirrors[name], func(mirror string) bool { return !before(l.mirrors[mirror], released) }) {
			result.Early = append(result.Early, name)
		}
	}
}

// before tells whether one revision of the API server is older than another; none is not.
func before(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// describe says how the nodes were seen last.
func (l *ledger) describe() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l.joined)) {
		parts = append(parts, name+" "+l.joined[name].state)
	}
	return strings.Join(parts, ", ")
}
