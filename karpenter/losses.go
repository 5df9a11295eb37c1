package karpenter

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/losses"
)

// LossOptions are what a user chooses of the durable record of losses.
type LossOptions struct {
	// Retention is how long a record is kept after it was closed or withdrawn.
	Retention time.Duration
	// PerNamespace is how many records a namespace may have; 0 records nothing.
	PerNamespace int
	// Lease is where it is written down since when records can be trusted.
	Lease losses.Lease
}

// A recorder keeps the durable record of losses. It keeps nobody waiting.
type recorder interface {
	Marked(pod *corev1.Pod, risk losses.Risk)
	Cleared(pod *corev1.Pod)
	Ended(pod *corev1.Pod, risk losses.Risk, ending losses.Ending)
	Run(ctx context.Context, stop <-chan struct{})
	Dropped() int64
	Failed() int64
}

// noRecords is the recorder of a controller that records nothing.
type noRecords struct{}

func (noRecords) Marked(*corev1.Pod, losses.Risk)               {}
func (noRecords) Cleared(*corev1.Pod)                           {}
func (noRecords) Ended(*corev1.Pod, losses.Risk, losses.Ending) {}
func (noRecords) Run(_ context.Context, stop <-chan struct{})   { <-stop }
func (noRecords) Dropped() int64                                { return 0 }
func (noRecords) Failed() int64                                 { return 0 }

func (c *Controller) newRecorder() recorder {
	o := c.options.Losses
	if o.PerNamespace == 0 || c.options.DryRun {
		return noRecords{}
	}
	return losses.New(c.clients.Dynamic, c.clients.Typed, c.informers.Core().V1().Pods().Lister(), losses.Options{
		Retention: o.Retention, PerNamespace: o.PerNamespace, Lease: o.Lease,
		Clock: c.options.Clock, Refused: c.refusals.Report, Metrics: c.options.Metrics.Queues(),
		Lost:  c.lostUnseen,
		Ready: c.enqueueMarked,
	})
}

// enqueueMarked has all that is at risk told once more.
func (c *Controller) enqueueMarked() {
	for _, node := range c.informers.Pods().GetIndexer().ListIndexFuncValues(markedBy) {
		if node != "" {
			c.enqueueNode(node)
		}
	}
}

// risk is the marker as the record has it.
func (m Marker) risk() losses.Risk {
	return losses.Risk{
		Verdict: string(m.Verdict), Reason: string(m.Reason), State: string(m.State), Cause: m.Cause, Node: m.Node,
		Since: m.Since, Deadline: m.Deadline,
	}
}

// ended takes note of a pod's end, if it bore a marker or was told of without one.
func (c *Controller) ended(pod *corev1.Pod, ending losses.Ending) {
	text, _ := markOf(pod)
	marker, ok := ParseMarker(text)
	if !ok {
		if marker, ok = c.tolds.unmarked(pod.UID); !ok {
			return
		}
	}
	c.recorder.Ended(pod, marker.risk(), ending)
	if ending == losses.Lost && c.tolds.first(pod.UID) {
		c.tellLost(pod, marker)
	}
}

// lostUnseen takes note of a marked pod that was lost while no controller looked.
func (c *Controller) lostUnseen(record *v1alpha1.PodLoss) {
	if !c.tolds.first(record.Spec.Pod.UID) {
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Spec.Pod.Name, UID: record.Spec.Pod.UID}}
	c.tellLost(pod, Marker{
		Verdict: fate.Verdict(record.Spec.Verdict), Reason: fate.Reason(record.Spec.Reason), State: State(record.Spec.State),
		Cause: record.Spec.Cause, Node: record.Spec.Node, Since: record.Spec.Since.Time,
	})
}

// noteWrite takes note of a marker that was written or removed.
func (c *Controller) noteWrite(w write, marker Marker) {
	switch {
	case c.options.DryRun:
		return
	case w.text == "":
		c.options.Metrics.Cleared()
		c.recorder.Cleared(w.pod)
		return
	}
	c.recorder.Marked(w.pod, marker.risk())
	c.options.Metrics.Marked(string(marker.Verdict))
	before, _ := markOf(w.pod)
	if _, again := ParseMarker(before); again {
		return // only what it says has changed
	}
	now := c.options.Clock()
	if seen, ok := c.reactions.since(w.pod.Spec.NodeName); ok {
		c.options.Metrics.Reacted(now.Sub(seen))
	}
	if !c.memory.estimated(marker.Node) {
		c.options.Metrics.Aged(now.Sub(marker.Since))
	}
}

// withdrawUnmarked has the records of pods withdrawn that were told of without a marker and are at risk no more: there is no
// marker whose removal would say so. As with a marker, a pod that is being deleted is still being lost.
func (c *Controller) withdrawUnmarked(pods []*corev1.Pod, m marking) {
	for _, pod := range pods {
		if _, told := c.tolds.unmarked(pod.UID); !told {
			continue
		}
		_, marked := m.marked[pod.UID]
		_, atRisk := m.unmarked[pod.UID]
		if !marked && !atRisk && pod.DeletionTimestamp == nil {
			c.recorder.Cleared(pod)
		}
		if marked || !atRisk && pod.DeletionTimestamp == nil {
			c.tolds.without.Remove(pod.UID)
		}
	}
}

// tolds remembers of which pods it was told that they are lost: failing and being deleted are two events and one loss. And
// of which it was told that they will be, although their marker could not be written.
type tolds struct {
	uids    *lru.Cache
	without *lru.Cache // of Marker by UID
}

// toldsRemembered bounds what is remembered.
const toldsRemembered = 16384

func newTolds() tolds {
	return tolds{uids: lru.New(toldsRemembered), without: lru.New(toldsRemembered)}
}

func (t tolds) unmark(uid types.UID, marker Marker) { t.without.Add(uid, marker) }

// unmarked is the marker that the pod should bear and does not.
func (t tolds) unmarked(uid types.UID) (Marker, bool) {
	marker, known := t.without.Get(uid)
	if !known {
		return Marker{}, false
	}
	return marker.(Marker), true
}

func (t tolds) first(uid types.UID) bool {
	if _, known := t.uids.Get(uid); known {
		return false
	}
	t.uids.Add(uid, nil)
	return true
}

// requests remembers when the deletion of marked pods was asked for. deletionTimestamp is that time plus the grace period; but
// the object that a pod's end comes with has a period of zero, whatever the time in it was made of.
type requests struct{ byUID *lru.Cache }

func newRequests() requests { return requests{lru.New(toldsRemembered)} }

func (r requests) note(pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		return
	}
	grace := pod.DeletionGracePeriodSeconds
	if _, marked := markOf(pod); !marked || grace == nil || *grace == 0 {
		return
	}
	if _, known := r.byUID.Get(pod.UID); !known {
		r.byUID.Add(pod.UID, pod.DeletionTimestamp.Add(-time.Duration(*grace)*time.Second))
	}
}

// of returns when the deletion of a pod that is gone was asked for; where that was not seen, by the pod's own grace period.
// Zero is for a pod that was removed at once.
func (r requests) of(pod *corev1.Pod) time.Time {
	if at, known := r.byUID.Get(pod.UID); known {
		return at.(time.Time)
	}
	if pod.DeletionTimestamp == nil {
		return time.Time{}
	}
	grace := time.Duration(0)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = time.Duration(*own) * time.Second
	}
	return pod.DeletionTimestamp.Add(-grace)
}

// reactions remembers since when each node's key waits for somebody to react. Safe for concurrent use.
type reactions struct {
	mu      sync.Mutex
	waiting map[string]time.Time // guarded by mu, as all below; by node
	working map[string]time.Time
}

func newReactions() *reactions {
	return &reactions{waiting: map[string]time.Time{}, working: map[string]time.Time{}}
}

// signal says that something reached rollcall that makes it look at the node.
func (r *reactions) signal(node string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.waiting[node]; !known {
		r.waiting[node] = now
	}
}

// start says that the node is being looked at: what comes from now on waits anew. After a failure the first signal counts.
func (r *reactions) start(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, waits := r.waiting[node]
	delete(r.waiting, node)
	if _, failed := r.working[node]; waits && !failed {
		r.working[node] = seen
	}
}

// done says that all that follows was written.
func (r *reactions) done(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.working, node)
}

// since is when the signal came that the node is being looked at for.
func (r *reactions) since(node string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, known := r.working[node]
	return seen, known
}
