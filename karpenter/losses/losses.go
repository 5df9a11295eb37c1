// Package losses owns the durable record of what was lost (DESIGN.md section 5): PodLoss objects, opened when a pod is marked
// or should be and cannot, closed when it is lost, withdrawn when its marker is cleared, bounded by age and number; and
// since when such records can be trusted. It never marks a pod, never changes one, and keeps nobody waiting: what it is told
// is written later, by goroutines of its own.
package losses

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// A Risk is what the marker on a pod says.
type Risk struct {
	Verdict, Reason, State, Cause string
	// Node is the node that costs the pod.
	Node string
	// Since is the signal time, Deadline the moment after which pods are killed; zero where none is known.
	Since, Deadline time.Time
}

// An Ending is how a pod that was marked ended.
type Ending int

// The endings.
const (
	Unended  Ending = iota
	Lost            // it was deleted, or failed by the disruption
	Finished        // it came to its own end before
)

// A key is one pod, for ever.
type key struct {
	namespace, name string
	uid             types.UID
}

func keyOf(pod *corev1.Pod) key { return key{pod.Namespace, pod.Name, pod.UID} }

// recordName is the name of the record of a pod: the same at each call, after a restart too.
func (k key) recordName() string {
	sum := sha256.Sum256([]byte(k.uid))
	const room = 253 - 1 - 20 // a name's limit, the dot, the hash
	return fmt.Sprintf("%s.%s", strings.TrimRight(k.name[:min(len(k.name), room)], ".-"), hex.EncodeToString(sum[:10]))
}

// keyFor is the pod of a record.
func keyFor(record *v1alpha1.PodLoss) key {
	return key{record.Namespace, record.Spec.Pod.Name, record.Spec.Pod.UID}
}

// told is what the controller said of one pod in this process. The zero value is nothing.
type told struct {
	pod    *corev1.Pod
	risk   Risk
	marked bool
	// cleared: rollcall took the marker off.
	cleared bool
	ending  Ending
	endedAt time.Time
}

// A step is what to do about one record.
type step int

const (
	leave    step = iota
	open          // write it, or bring it up to date
	shut          // the pod is lost
	withdraw      // it is not, any more
	confirm       // the caches have no such pod: ask the server, then shut
)

// decide says what to do, from the record as it is (nil for none), the pod in the cache (nil where it has none with that
// UID) and what was told. It is pure.
func decide(record *v1alpha1.PodLoss, pod *corev1.Pod, marked bool, t told) step {
	state := v1alpha1.LossState("")
	if record != nil {
		state = record.Status.State
	}
	switch {
	// 1. Closed is final.
	case state == v1alpha1.Closed:
		return leave
	// 2. The pod ended while this process looked. A mark that was cleared before is no loss.
	case t.ending == Lost && (t.marked || state == v1alpha1.Open):
		return shut
	case t.ending != Unended:
		return withdrawOpen(state)
	// 3. It bears the marker, and nothing was heard of its end.
	case t.marked && pod == nil:
		return confirm
	case t.marked:
		return open
	// 4. It bore one.
	case t.cleared:
		return withdrawOpen(state)
	// 5. An open record of an earlier process.
	case state != v1alpha1.Open:
		return leave
	case pod == nil:
		return confirm
	case EndedByDisruption(pod):
		return shut
	case !marked && pod.DeletionTimestamp == nil:
		return withdraw
	}
	return leave
}

func withdrawOpen(state v1alpha1.LossState) step {
	if state == v1alpha1.Open {
		return withdraw
	}
	return leave
}

// EndedByDisruption tells whether the pod failed because it was evicted or its node died: an eviction, the taint manager,
// PodGC and a kubelet that shuts down all set the condition.
func EndedByDisruption(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// FinishedFirst tells whether a pod that is gone had come to its own end before its deletion was asked for, at asked; zero
// stands for a pod that was removed at once. The phase alone does not tell: a kubelet writes Succeeded or Failed for containers
// that ended on the deletion's SIGTERM too, before it lets the object go. Kubernetes writes whole seconds; a tie counts as lost.
func FinishedFirst(pod *corev1.Pod, asked time.Time) bool {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed || EndedByDisruption(pod) {
		return false
	}
	if asked.IsZero() {
		return true
	}
	for _, container := range pod.Status.ContainerStatuses {
		// A container that never started is reported as ended at no time.
		if ended := container.State.Terminated; ended == nil || ended.FinishedAt.IsZero() || !ended.FinishedAt.Time.Before(asked) {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

// spec is what a record says of the pod and its risk, without the manifest.
func (t told) spec(k key) v1alpha1.PodLossSpec {
	s := v1alpha1.PodLossSpec{
		Pod:  v1alpha1.PodReference{Name: k.name, UID: k.uid},
		Node: t.risk.Node, Verdict: t.risk.Verdict, Reason: t.risk.Reason, State: t.risk.State, Cause: t.risk.Cause,
		Since: metav1.NewTime(t.risk.Since),
		Owner: ownerOf(t.pod),
	}
	if t.pod.Spec.NodeName != t.risk.Node {
		s.RunsOn = t.pod.Spec.NodeName
	}
	if !t.risk.Deadline.IsZero() {
		deadline := metav1.NewTime(t.risk.Deadline)
		s.Deadline = &deadline
	}
	return s
}

// ownerOf is the pod's controller, else its first owner.
func ownerOf(pod *corev1.Pod) string {
	if len(pod.OwnerReferences) == 0 {
		return ""
	}
	owner := pod.OwnerReferences[0]
	if c := metav1.GetControllerOf(pod); c != nil {
		owner = *c
	}
	return owner.Kind + "/" + owner.Name
}

// same tells whether two specs say the same, the manifest aside.
func same(a, b v1alpha1.PodLossSpec) bool {
	if a.Deadline.Equal(b.Deadline) && a.Since.Equal(&b.Since) {
		a.Deadline, b.Deadline, a.Since, b.Since = nil, nil, metav1.Time{}, metav1.Time{}
		a.Manifest, b.Manifest = nil, nil
		return a.Pod == b.Pod && a.Node == b.Node && a.RunsOn == b.RunsOn && a.Verdict == b.Verdict && a.Reason == b.Reason &&
			a.State == b.State && a.Cause == b.Cause && a.Owner == b.Owner
	}
	return false
}
