package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const voluntary = "Pending " + karpv1.DisruptedTaintKey

// Karpenter finds a cheaper machine: it taints the node and waits for the replacement. That fails, and it takes the taint
// back: no mark remains, and the log says why. The second time it goes through.
func TestConsolidation(t *testing.T) {
	a := onStage(t)
	t.Parallel()
	a.pool(large, func(pool *karpv1.NodePool) {
		pool.Spec.Disruption.ConsolidateAfter = after(0)
	})
	a.pod("bare", "", nil)
	node := a.placed("bare")
	claim := a.claimOf(node)
	a.standIn.Hold(a.name, true) // the replacement will not come up
	a.repool(`{"spec":{"template":{"spec":{"requirements":[
		{"key":"node.kubernetes.io/instance-type","operator":"In","values":["` + small + `","` + large + `"]},
		{"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]}]}}}}`)

	first := a.await("Karpenter's taint", isNode(node, tainted))
	mark := a.await("a mark", isPod("bare", marked))
	if mark.marker.State != "Pending" || mark.marker.Cause != karpv1.DisruptedTaintKey || !mark.marker.Deadline.IsZero() {
		t.Errorf("marker %+v", mark.marker)
	}
	if life, _ := a.controller.Life(node); life.DisruptionReason.Reason != "Underutilized" {
		a.eventually("Karpenter's reason", func() bool {
			life, _ := a.controller.Life(node)
			return life.DisruptionReason.Reason == "Underutilized"
		})
	}
	t.Logf("pending: taint 0 ms, mark %d ms", since(first.at, mark))

	// The replacement goes: Karpenter gives up and takes the taint back.
	replacement := a.await("a replacement", func(s sight) bool { return s.kind == "NodeClaim" && s.name != claim && !s.gone })
	a.deleteClaim(replacement.name)
	a.eventually("the mark is cleared", func() bool {
		story := a.markers("bare")
		return len(story) >= 3 && slices.Equal(story[:3], []string{"-", voluntary, "-"})
	})
	// The watch may be faster than the answer to the write, after which it is logged.
	a.eventually("the log says why", func() bool {
		return len(a.log.lines("a pod's marker is removed", a.name+"/bare", "the taint karpenter.sh/disrupted is gone")) > 0
	})

	a.standIn.Hold(a.name, false)
	a.await("the NodeClaim's deletion", isClaim(claim, deleting))
	a.await("the eviction", isPod("bare", evicted))
	a.committedBeforeEviction("bare")
	t.Logf("markers of the pod: %v, taint taken back %d times", a.markers("bare"), a.takenBack(node))
}

// committedBeforeEviction checks that a pod's marker was last Committed by a deletion of Karpenter's and is still there at its end.
func (a *act) committedBeforeEviction(pod string) {
	a.Helper()
	a.await("a committed mark", isPod(pod, committed))
	a.await(pod+" is gone", isPod(pod, func(s sight) bool { return s.gone }))
	if last := a.latest("Pod", pod); !last.marked {
		a.Errorf("%s went without its mark", pod)
	}
}

// A changed template makes the node drift: it is replaced first and deleted then.
func TestDrift(t *testing.T) {
	a := onStage(t)
	t.Parallel()
	a.pool(small, nil)
	a.pod("bare", "", nil)
	node := a.placed("bare")
	claim := a.claimOf(node)
	a.repool(`{"spec":{"template":{"metadata":{"labels":{"example.com/version":"2"}}}}}`)
	a.await("a pending mark", isPod("bare", func(s sight) bool { return s.marked && s.marker.State == "Pending" }))
	if life, _ := a.controller.Life(node); !life.Drifted.Is() {
		t.Errorf("life %+v, want it drifted", life)
	}
	a.await("the NodeClaim's deletion", isClaim(claim, deleting))
	a.committedBeforeEviction("bare")
	// Karpenter may try more than once: each time it takes its taint back the mark may go too.
	story := a.markers("bare")
	for range a.takenBack(node) {
		if len(story) > 3 && slices.Equal(story[:2], []string{"-", voluntary}) {
			story = story[2:]
		}
	}
	if !slices.Equal(story, []string{"-", voluntary, "Committed"}) {
		t.Errorf("markers %v\n%s\n%s", a.markers("bare"), a.story(), strings.Join(a.log.lines(a.name+"/bare"), "\n"))
	}
}

// Expiration deletes the NodeClaim without a word before.
func TestExpiration(t *testing.T) {
	a := onStage(t)
	t.Parallel()
	a.pool(small, func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.ExpireAfter = after(30 * time.Second)
	})
	a.pod("bare", "", nil)
	node := a.placed("bare")
	claim := a.claimOf(node)
	a.await("the NodeClaim's deletion", isClaim(claim, deleting))
	a.committedBeforeEviction("bare")
	if story := a.markers("bare"); !slices.Equal(story, []string{"-", "Committed"}) {
		t.Errorf("markers %v", story)
	}
}

// A pod that must not be disrupted holds the node until its grace period ends: the deadline is known from the first mark
// on, and is Karpenter's.
func TestTerminationGracePeriod(t *testing.T) {
	a := onStage(t)
	t.Parallel()
	const grace, stop = 20 * time.Second, int64(5)
	a.pool(small, func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: grace}
	})
	a.pod("protected", "", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		seconds := stop
		pod.Spec.TerminationGracePeriodSeconds = &seconds
	})
	node := a.placed("protected")
	claim := a.claimOf(node)
	a.deleteClaim(claim)
	start := a.await("the NodeClaim's deletion", isClaim(claim, deleting))
	mark := a.await("a mark", isPod("protected", marked))
	object, err := a.dynamic.Resource(claimResource).Get(t.Context(), claim, metav1.GetOptions{})
	a.must(err)
	end := object.GetDeletionTimestamp().Add(grace)
	if !mark.marker.Deadline.Equal(end) {
		t.Errorf("deadline %v in the first mark, want %v", mark.marker.Deadline, end)
	}
	eviction := a.await("the eviction", isPod("protected", evicted))
	a.committedBeforeEviction("protected")
	last := a.latest("Pod", "protected")
	if !last.marker.Deadline.Equal(end) {
		t.Errorf("deadline %v in the last mark, want %v", last.marker.Deadline, end)
	}
	t.Logf("NodeClaim deleted 0 ms; mark %d ms; evicted %d ms; deadline %d ms after the deletion",
		since(start.at, mark), since(start.at, eviction), grace.Milliseconds())
	if early := end.Add(-time.Duration(stop)*time.Second - time.Second); eviction.at.Before(early) {
		t.Errorf("evicted at %v, which is before %v", eviction.at, early)
	}
}

// A real kubelet takes the Node over. While the startup taint is there nothing is marked and the node's life says what it
// waits for; then it runs pods and is interrupted.
func TestStartupTaints(t *testing.T) {
	a := onStage(t)
	t.Parallel()
	startup := corev1.Taint{Key: "example.com/starting", Value: "pending", Effect: corev1.TaintEffectNoSchedule}
	a.pool(small, func(pool *karpv1.NodePool) { pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{startup} })
	a.standIn.Hold(a.name, true)
	a.pod("late", "", nil)
	node := a.await("a Node", func(s sight) bool { return s.kind == "Node" }).name
	a.kubelet(node)
	a.pod("early", node, func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	a.eventually("it waits for the startup taint", func() bool {
		life, _ := a.controller.Life(node)
		condition, stage, waits := life.Waiting()
		return waits && condition == karpv1.ConditionTypeInitialized && stage.Reason == "StartupTaintsExist"
	})
	if _, wrong := a.first(isPod("early", marked)); wrong {
		t.Error("a pod on a node that starts is marked")
	}
	a.untaint(node, startup.Key)
	claim := a.claimOf(node)
	if on := a.placed("late"); on != node {
		t.Errorf("the pod runs on %s, want %s", on, node)
	}
	a.deleteClaim(claim)
	for _, pod := range []string{"early", "late"} {
		a.await("a mark on "+pod, isPod(pod, func(s sight) bool { return s.marked && s.marker.State == "Committed" }))
	}
	a.await("the eviction", isPod("late", evicted))
}
