package truth

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// outcome is what became of one pod.
type outcome string

const (
	recreated    outcome = "recreated"                 // a successor runs on the node that stays
	notRecreated outcome = "not recreated"             // gone, with no successor
	pending      outcome = "pending for lack of room"  // a successor finds no place
	stuck        outcome = "stuck"                     // a finalizer keeps the object, and there is no successor
	done         outcome = "counted as done"           // it ended with exit code 0, and its Job is complete
	deletedThere outcome = "deleted on a healthy node" // lost with another node than its own
	alive        outcome = "alive"                     // the same object, not Terminating
	underWay     outcome = "under way"                 // nothing of the above yet
)

// claim returns the outcomes of which one makes a verdict true; none where the verdict claims nothing.
func claim(verdict fate.Verdict, reason fate.Reason, onGoing bool) []outcome {
	switch {
	case verdict == fate.Lost && !onGoing:
		return []outcome{deletedThere}
	case verdict == fate.Lost:
		return []outcome{notRecreated, stuck}
	case verdict == fate.Finished, verdict == fate.Static, verdict == fate.GoesWithNode, reason == fate.AlreadyReplaced:
		return []outcome{notRecreated}
	case verdict == fate.Returns:
		return []outcome{recreated}
	case reason == fate.NoPlaceLeft:
		return []outcome{pending}
	case reason == fate.BlockedByFinalizer:
		return []outcome{stuck}
	}
	return nil
}

// A lineage is a place in the world that one pod fills at a time, or several where nothing tells them apart.
type lineage struct {
	owner types.UID
	place string
}

func lineageOf(pod *corev1.Pod) lineage {
	ref := metav1.GetControllerOfNoCopy(pod)
	switch {
	case ref == nil:
		return lineage{place: pod.Name}
	case ref.Kind == "StatefulSet":
		return lineage{ref.UID, pod.Name}
	case ref.Kind == "DaemonSet":
		return lineage{ref.UID, pod.Spec.NodeName}
	}
	return lineage{ref.UID, pod.Labels[jobIndexLabel]}
}

// observe writes into every row what has become of its pod so far. It says whether anything moved since the last time,
// and whether all is as the scenarios expect.
func (s *site) observe(rows record) (moved, asExpected bool) {
	known := map[types.UID]bool{}
	for _, r := range rows {
		known[r.pod.UID] = true
	}
	successors := map[lineage][]*corev1.Pod{}
	for _, pod := range s.ledger.living(func(p *corev1.Pod) bool { return !known[p.UID] && !finished(p) && p.DeletionTimestamp == nil }) {
		of := lineageOf(pod)
		successors[of] = append(successors[of], pod)
	}
	for _, pods := range successors {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int { return -strings.Compare(string(a.Status.Phase), string(b.Status.Phase)) })
	}
	asExpected = true
	for _, r := range rows.inLine() {
		var successor *corev1.Pod
		if of := lineageOf(r.pod); r.onGoing && !finished(r.pod) && len(successors[of]) > 0 {
			successor, successors[of] = successors[of][0], successors[of][1:]
		}
		now := s.outcome(r, successor)
		moved = moved || now != r.outcome
		r.outcome = now
		asExpected = asExpected && r.asExpected()
	}
	return moved, asExpected
}

// inLine returns the rows in the order in which successors are handed out: a Terminating pod has had its own already, if
// any, so it comes last.
func (rows record) inLine() []*row {
	line := make([]*row, len(rows))
	for i := range rows {
		line[i] = &rows[i]
	}
	terminating := func(r *row) int {
		if r.pod.DeletionTimestamp != nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(line, func(a, b *row) int {
		return cmp.Or(cmp.Compare(terminating(a), terminating(b)), strings.Compare(a.pod.Name, b.pod.Name))
	})
	return line
}

func (s *site) outcome(r *row, successor *corev1.Pod) outcome {
	last, exists := s.ledger.pod(r.pod.UID), s.ledger.exists(r.pod.UID)
	switch {
	case successor != nil && successor.Status.Phase == corev1.PodRunning && successor.Spec.NodeName == s.stays:
		return recreated
	case successor != nil && unschedulable(successor):
		return pending
	case successor != nil:
		return underWay
	case exists && last.DeletionTimestamp == nil:
		return alive
	case exists && held(last):
		return stuck
	case exists:
		return underWay
	case !r.onGoing:
		return deletedThere
	case !finished(r.pod) && last.Status.Phase == corev1.PodSucceeded && s.ledger.complete(lineageOf(r.pod).owner):
		return done
	}
	return notRecreated
}

func unschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// held says whether the test's own finalizer keeps the object.
func held(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, holdFinalizer) }
