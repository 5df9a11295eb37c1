package race

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/readiness"
)

// What the ledger counts, and that it would see a node that is released too early.
func TestLedgerCounts(t *testing.T) {
	l := newLedger("r")
	node := func(name, revision string, held bool) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: revision}}
		if held {
			n.Spec.Taints = []corev1.Taint{{Key: readiness.DefaultTaint.Key, Value: "pending", Effect: readiness.DefaultTaint.Effect}}
		}
		l.seeNode(n)
	}
	mirror := func(name, revision string) {
		l.seePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "s", Name: name, ResourceVersion: revision, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "h"}}})
	}
	pod := func(name, on string, phase corev1.PodPhase, reason string) {
		l.seePod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "r", Name: name}, Spec: corev1.PodSpec{NodeName: on},
			Status: corev1.PodStatus{Phase: phase, Reason: reason},
		})
	}
	for _, name := range []string{"r-0", "r-1", "r-2", "r-3"} {
		node(name, "10", true)
	}
	mirror("in-time", "20")
	node("r-0", "21", false)
	node("r-1", "29", false)
	mirror("late", "30")
	node("r-2", "31", false)
	node("another", "32", true)
	node("r-0", "40", false)
	mirror("in-time", "41") // a later version of the same
	pod("a", "r-0", corev1.PodRunning, "")
	pod("b", "", corev1.PodPending, "")
	pod("c", "r-1", corev1.PodPending, "") // bound, and not yet run
	pod("d", "r-1", corev1.PodFailed, outOfCPU)
	pod("e", "r-1", corev1.PodFailed, "Evicted")

	var got Result
	l.count(&got, map[string][]string{"r-0": {"s/in-time"}, "r-1": {"s/in-time", "s/late"}, "r-2": {"s/never"}, "r-3": {"s/in-time"}})
	if got.Failed != 2 || got.Running != 1 || got.Pending != 1 || l.refused()["r-1"] != 1 {
		t.Errorf("counted %+v and refused %v", got, l.refused())
	}
	if !slices.Equal(got.Released, []string{"r-0", "r-1", "r-2"}) || !slices.Equal(got.Early, []string{"r-1", "r-2"}) {
		t.Errorf("released %v, early %v", got.Released, got.Early)
	}
}
