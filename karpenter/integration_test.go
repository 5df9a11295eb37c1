package karpenter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// The main job: the pods that nothing will make again are marked, the others are not, and the marks go with the taint.
func TestTaintMarksAndUntaintClears(t *testing.T) {
	l := newLab(t)
	node := l.apiNode()
	l.barePod("bare", node)
	l.barePod("done", node)
	owned := l.replicaSet("web", node)
	_, err := l.client.CoreV1().Pods(l.namespace).Patch(t.Context(), "done", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	l.must(err)
	r := l.startController(nil)

	l.taint(node, true)
	marker, ok := karpenter.ParseMarker(l.waitMark("bare", true))
	if !ok || marker.Verdict != fate.Lost || marker.Reason != fate.NoController || marker.State != karpenter.Committed ||
		marker.Cause != interruption.Key || marker.Node != node || marker.Deadline.Sub(marker.Since) != 2*time.Minute {
		t.Errorf("marker %+v", marker)
	}
	event := l.waitEvent(l.namespace, "bare", karpenter.WillBeLost)
	if event.Type != corev1.EventTypeWarning || event.Related == nil || event.Related.Name != node {
		t.Errorf("Event %+v", event)
	}
	if summary := l.waitEvent(metav1.NamespaceDefault, node, karpenter.WillBeLost); !strings.Contains(summary.Message, l.namespace+"/bare") {
		t.Errorf("summary %q", summary.Message)
	}
	for _, pod := range []string{owned, "done"} {
		if text, marked := l.mark(pod); marked {
			t.Errorf("%s is marked: %s", pod, text)
		}
	}
	l.taint(node, false)
	l.waitMark("bare", false)
	l.settled()
	if got := l.writes(r)["patch pods/status"]; got != 4 { // two for bare, two for the sentinel
		t.Errorf("%d writes of markers, want 4", got)
	}
}

// A pod that joins a tainted node is marked; one that its ReplicaSet gives up is marked when that is so.
func TestLaterChangesAreMarked(t *testing.T) {
	l := newLab(t)
	node := l.apiNode()
	owned := l.replicaSet("web", node)
	l.startController(nil)
	l.taint(node, true)
	l.barePod("late", node)
	l.waitMark("late", true)
	if _, marked := l.mark(owned); marked {
		t.Error("a pod that its ReplicaSet makes again is marked")
	}
	orphan := metav1.DeletePropagationOrphan
	l.must(l.client.AppsV1().ReplicaSets(l.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	l.waitMark(owned, true)
}

// A controller of a kind that the server does not serve makes nothing again. Such a pod is the one kind of orphan that
// the garbage collector leaves alone.
func TestOwnerOfUnservedKind(t *testing.T) {
	l := newLab(t)
	node := l.apiNode()
	isController := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "widget", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "0c8f", Controller: &isController}}}, Spec: podSpec(node)}
	_, err := l.client.CoreV1().Pods(l.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	l.must(err)
	l.startController(nil)
	l.taint(node, true)
	if marker, _ := karpenter.ParseMarker(l.waitMark("widget", true)); marker.Reason != fate.OwnerGone {
		t.Errorf("marker %+v", marker)
	}
}

// A Node that no longer exists when the controller starts still costs its pods, until the pod garbage collector has removed
// them.
func TestPodOfVanishedNodeIsMarked(t *testing.T) {
	l := newLab(t)
	gone := l.namespace + "-gone"
	l.barePod("before", gone)
	l.startController(nil)
	if marker, _ := karpenter.ParseMarker(l.waitMark("before", true)); marker.Cause != karpenter.NodeDeleted || marker.Node != gone {
		t.Errorf("marker %+v", marker)
	}
	l.barePod("after", gone)
	l.waitMark("after", true)
}

// A driver on a node that goes costs its executor on one that stays: that one's marker names the other's node, and goes
// with the other's taint.
func TestCollateralIsMarked(t *testing.T) {
	l := newLab(t)
	going, staying := l.apiNode(), l.apiNode()
	driver := l.barePod("driver", going)
	isController := true
	executor := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "executor", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: driver.Name, UID: driver.UID, Controller: &isController}}}, Spec: podSpec(staying)}
	_, err := l.client.CoreV1().Pods(l.namespace).Create(t.Context(), executor, metav1.CreateOptions{})
	l.must(err)
	first := l.startController(nil)
	l.taint(going, true)
	l.waitMark("driver", true)
	if marker, _ := karpenter.ParseMarker(l.waitMark("executor", true)); marker.Reason != fate.OwnerPodLost || marker.Node != going {
		t.Errorf("marker %+v", marker)
	}
	l.waitEvent(l.namespace, "executor", karpenter.WillBeLost)
	l.taint(going, false)
	l.waitMark("executor", false)

	// And over a restart, in which the taint goes.
	l.taint(going, true)
	l.waitMark("executor", true)
	first.stop()
	l.taint(going, false)
	l.startController(nil)
	l.waitMark("executor", false)
}

// With --mark Stranded a pod that would find no other place is marked, until there is one.
func TestStrandedIsMarked(t *testing.T) {
	l := newLab(t)
	node := l.apiNode()
	label := []byte(`{"metadata":{"labels":{"example.com/only":"` + l.namespace + `"}}}`)
	_, err := l.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, label, metav1.PatchOptions{})
	l.must(err)
	spec := podSpec(node)
	spec.NodeSelector = map[string]string{"example.com/only": l.namespace}
	pod := l.replicaSetOf("web", spec)
	l.startMarking(nil, fate.Lost, fate.Stranded)
	l.taint(node, true)
	if marker, _ := karpenter.ParseMarker(l.waitMark(pod, true)); marker.Verdict != fate.Stranded || marker.Reason != fate.NoPlaceLeft {
		t.Errorf("marker %+v", marker)
	}
	l.waitEvent(l.namespace, pod, karpenter.WillBeStranded)
	l.taint(node, false)
	l.waitMark(pod, false)
}

// The marker is the memory: a controller that was away finds what has to go.
func TestClearedAfterRestart(t *testing.T) {
	l := newLab(t)
	node := l.apiNode()
	l.barePod("bare", node)
	first := l.startController(nil)
	l.taint(node, true)
	text := l.waitMark("bare", true)
	l.waitEvent(l.namespace, "bare", karpenter.WillBeLost)
	first.stop()

	// With the taint still there nothing is written again, and no Event twice.
	second := l.startController(nil)
	l.settled()
	if again, _ := l.mark("bare"); again != text {
		t.Errorf("the marker changed from %s to %s", text, again)
	}
	if got := l.writes(second)["patch pods/status"]; got != 2 {
		t.Errorf("%d writes of markers, want the sentinel's 2", got)
	}
	l.waitEvent(l.namespace, "bare", karpenter.WillBeLost)
	second.stop()

	l.taint(node, false)
	l.startController(nil)
	l.waitMark("bare", false)
}

func TestForgedMarksGo(t *testing.T) {
	l := newLab(t)
	healthy, tainted := l.apiNode(), l.apiNode()
	l.barePod("healthy", healthy)
	l.barePod("tainted", tainted)
	gated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}, Spec: podSpec("")}
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/never"}}
	_, err := l.client.CoreV1().Pods(l.namespace).Create(t.Context(), gated, metav1.CreateOptions{})
	l.must(err)
	l.forge("healthy", "forged before")
	l.startController(nil)
	l.waitMark("healthy", false)

	l.forge("healthy", `{"verdict":"Lost"}`)
	l.waitMark("healthy", false)
	l.forge("nowhere", "forged")
	l.waitMark("nowhere", false)
	l.taint(tainted, true)
	right := l.waitMark("tainted", true)
	l.forge("tainted", right[:len(right)-1]+`,"by":"me"}`)
	l.eventually("a forged marker is set right", func(context.Context) (bool, error) {
		text, _ := l.mark("tainted")
		return text == right, nil
	})
}

// A marked pod that is being deleted keeps its mark though its node is healthy again, and is lost when it is gone.
func TestTerminatingKeepsMarkAndIsLost(t *testing.T) {
	l := newLab(t)
	node := l.apiNode()
	l.barePod("bare", node)
	l.startController(nil)
	l.taint(node, true)
	l.waitMark("bare", true)
	l.must(l.client.CoreV1().Pods(l.namespace).Delete(t.Context(), "bare", metav1.DeleteOptions{})) // no kubelet: it stays
	l.taint(node, false)
	l.settled()
	if _, marked := l.mark("bare"); !marked {
		t.Error("a pod that is still being lost is not marked any more")
	}
	if events := l.events(l.namespace, "bare", karpenter.PodLost); len(events) > 0 {
		t.Errorf("lost before it is gone: %v", events)
	}
	zero := int64(0)
	l.must(l.client.CoreV1().Pods(l.namespace).Delete(t.Context(), "bare", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	l.waitEvent(l.namespace, "bare", karpenter.PodLost)
}

// A Node that is deleted commits its pods, marked before or not, until they are gone.
func TestNodeDeleted(t *testing.T) {
	l := newLab(t)
	tainted, plain := l.apiNode(), l.apiNode()
	l.barePod("tainted", tainted)
	l.barePod("plain", plain)
	l.startController(nil)
	l.taint(tainted, true)
	before := l.waitMark("tainted", true)
	for _, node := range []string{tainted, plain} {
		l.must(l.client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
	}
	marker, _ := karpenter.ParseMarker(l.waitMark("plain", true))
	if marker.State != karpenter.Committed || marker.Cause != karpenter.NodeDeleted || marker.Node != plain {
		t.Errorf("marker %+v", marker)
	}
	if after, _ := l.mark("tainted"); after != before {
		t.Errorf("a known cause is forgotten with the Node: %s, before %s", after, before)
	}
	zero := int64(0)
	for _, pod := range []string{"tainted", "plain"} { // as PodGC does after 40 to 60 s
		l.must(l.client.CoreV1().Pods(l.namespace).Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
		l.waitEvent(l.namespace, pod, karpenter.PodLost)
	}
}
