package losses

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

const (
	// pendingAtMost bounds what is kept of pods that were told of. It is far beyond what a disruption marks at once; what
	// does not fit is told again when its node is looked at again.
	pendingAtMost = 16384
	// lookAgainAfter is how soon a missing CustomResourceDefinition, or a missing right to read, is looked for again.
	lookAgainAfter = 15 * time.Second
	// recorders is how many records are written at a time. Records are urgent to nobody.
	recorders = 2
)

// Options are what the recorder is told of its surroundings.
type Options struct {
	// Retention is how long a record is kept after it was closed or withdrawn.
	Retention time.Duration
	// PerNamespace is how many records a namespace may have.
	PerNamespace int
	// Clock is time.Now outside tests.
	Clock func() time.Time
	// Refused hears of missing rights.
	Refused func(verb, resource, namespace string, err error)
	// Lost hears of a marked pod that was lost while no controller looked.
	Lost func(record *v1alpha1.PodLoss)
	// Ready hears that records can be written again, and that what is true now must be told once more.
	Ready func()
	// Lease is where it is written down since when records can be trusted.
	Lease Lease
	// Metrics of the queue; nil for none.
	Metrics workqueue.MetricsProvider
}

// Recorder keeps the records of one process. What it is told returns at once and is safe from any goroutine.
type Recorder struct {
	options Options
	client  dynamic.Interface
	typed   kubernetes.Interface
	pods    corelisters.PodLister
	own     *lru.Cache // of *v1alpha1.PodLoss by key: own writes that the cache may not have yet
	dropped atomic.Int64
	failed  atomic.Int64

	mu      sync.Mutex
	told    map[key]told // guarded by mu, as all below
	session *session     // nil while nothing can be recorded
	absent  bool         // known to be so, and said
}

// New makes a recorder. It reads pods from the lister and confirms with the server.
func New(client dynamic.Interface, typed kubernetes.Interface, pods corelisters.PodLister, o Options) *Recorder {
	return &Recorder{options: o, client: client, typed: typed, pods: pods, own: lru.New(pendingAtMost), told: map[key]told{}}
}

// Marked says that the pod bears the marker, or should and cannot. It may be said again at any time.
func (r *Recorder) Marked(pod *corev1.Pod, risk Risk) {
	r.tell(pod, func(t *told) { t.pod, t.risk, t.marked, t.cleared = pod, risk, true, false })
}

// Cleared says that the pod's marker was taken off. Of a pod whose end is known that changes nothing:
//
//  1. a marked pod fails with DisruptionTarget before its record was written: Ended(Lost) is told;
//  2. its node's key sees a pod that is Finished, removes the marker, and Cleared is told;
//  3. the record of 1 is decided upon. Had 2 taken the mark back, the loss would be forgotten.
func (r *Recorder) Cleared(pod *corev1.Pod) {
	r.tell(pod, func(t *told) {
		if t.ending == Unended {
			t.marked, t.cleared = false, true
		}
	})
}

// Ended says how a pod that bore the marker ended. The pod is its last known state.
func (r *Recorder) Ended(pod *corev1.Pod, risk Risk, ending Ending) {
	r.tell(pod, func(t *told) {
		if t.ending == Unended {
			t.pod, t.risk, t.marked, t.ending, t.endedAt = pod, risk, true, ending, r.options.Clock()
		}
	})
}

// Dropped is how many records were not written because there was no room for them.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Failed is how many writes of records failed. Most are tried again.
func (r *Recorder) Failed() int64 { return r.failed.Load() }

func (r *Recorder) tell(pod *corev1.Pod, change func(*told)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent {
		return
	}
	k := keyOf(pod)
	t, known := r.told[k]
	if !known && len(r.told) >= pendingAtMost {
		r.dropped.Add(1)
		return
	}
	if t.pod == nil {
		t.pod = pod
	}
	change(&t)
	r.told[k] = t
	if r.session != nil {
		r.session.queue.Add(k)
	}
}

// Run records until stop closes, then writes what still waits, and gives up when the context ends. It may be called
// before PodLoss is served; it waits for that.
func (r *Recorder) Run(ctx context.Context, stop <-chan struct{}) {
	for {
		r.record(ctx, stop)
		again := time.NewTimer(lookAgainAfter)
		select {
		case <-ctx.Done():
		case <-stop:
		case <-again.C:
			continue
		}
		again.Stop()
		return
	}
}

// miss makes it known, once, that nothing is recorded. first is true that once.
func (r *Recorder) miss() (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = map[key]told{}
	if r.absent {
		return false
	}
	r.absent = true
	slog.Warn("losses are not recorded: the CustomResourceDefinition podlosses." + v1alpha1.GroupVersion.Group +
		" is not installed (apply deploy/crds/podlosses.yaml, it is noticed); everything else goes on")
	return true
}

// begin makes the session the current one and gives it what was told so far. missed says that some of it was dropped.
func (r *Recorder) begin(s *session) (missed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	missed = r.absent
	r.absent, r.session = false, s
	for k := range r.told {
		s.queue.Add(k)
	}
	return missed
}

func (r *Recorder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = nil
}

func (r *Recorder) toldOf(k key) told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[k]
}

// forget drops what was told of a pod, unless more was told meanwhile.
func (r *Recorder) forget(k key, t told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[k] == t {
		delete(r.told, k)
	}
}

// pod is the pod in the cache, nil where it has none with that UID.
func (r *Recorder) pod(k key) *corev1.Pod {
	pod, err := r.pods.Pods(k.namespace).Get(k.name)
	if err != nil || pod.UID != k.uid {
		return nil
	}
	return pod
}

// newest is the record as it is: from the cache, or from an own write that the cache has not seen yet.
func (r *Recorder) newest(cached *v1alpha1.PodLoss, k key) *v1alpha1.PodLoss {
	written, known := r.own.Get(k)
	if !known {
		return cached
	}
	own := written.(*v1alpha1.PodLoss)
	if cached == nil {
		return own
	}
	if order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, own.ResourceVersion); err != nil || order >= 0 {
		r.own.Remove(k)
		return cached
	}
	return own
}
