package karpenter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// patience bounds every wait: a loaded machine may be slow, and a test that holds does not wait.
const patience = time.Minute

// A lab is a namespace on the shared control plane, with a client of an administrator's.
type lab struct {
	testing.TB
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	namespace string
}

func newLab(t testing.TB) *lab {
	t.Helper()
	cluster := livecluster.Shared(t)
	client := kubernetes.NewForConfigOrDie(cluster.Config())
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lab-"}}, metav1.CreateOptions{})
	l := &lab{t, cluster, client, ""}
	l.must(err)
	l.namespace = namespace.Name
	t.Cleanup(func() { // after the nodes are gone and the controller is
		zero := int64(0)
		ctx := context.Background()
		_ = client.CoreV1().Pods(l.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
		_ = client.CoreV1().Namespaces().Delete(ctx, l.namespace, metav1.DeleteOptions{})
	})
	return l
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) eventually(what string, condition func(context.Context) (bool, error)) {
	l.Helper()
	if err := wait.PollUntilContextTimeout(l.Context(), 20*time.Millisecond, patience, true, condition); err != nil {
		l.Fatalf("%s: %v", what, err)
	}
}

// A running controller, in this process.
type running struct {
	agent string // its user agent, which no other has
	stop  func()
}

// startController starts one that marks what is Lost and returns when its caches are synced. wrap may look at its
// requests.
func (l *lab) startController(wrap func(http.RoundTripper) http.RoundTripper) running {
	l.Helper()
	return l.startMarking(wrap, fate.Lost)
}

func (l *lab) startMarking(wrap func(http.RoundTripper) http.RoundTripper, verdicts ...fate.Verdict) running {
	l.Helper()
	mark := map[fate.Verdict]bool{}
	for _, verdict := range verdicts {
		mark[verdict] = true
	}
	config := l.cluster.Config()
	config.UserAgent = fmt.Sprintf("rollcall-test/%s-%d", l.namespace, time.Now().UnixNano())
	if wrap != nil {
		config.Wrap(wrap)
	}
	clients := clientsFor(config)
	set, err := informers.New(clients, informers.Options{Placement: mark[fate.Stranded]})
	l.must(err)
	controller, err := karpenter.New(clients, set, karpenter.Options{
		Disruption: karpenter.DefaultConfig(), Mark: mark, Workers: 4, Identity: "test",
	})
	l.must(err)
	background, end := context.WithCancel(context.Background())
	cached, stop, worked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(cached)
		set.Run(background)
	}()
	if !cache.WaitForCacheSync(l.Context().Done(), set.Synced) {
		l.Fatal("the caches did not sync")
	}
	go func() { worked <- controller.Run(background, stop) }()
	stopped := false
	r := running{agent: config.UserAgent, stop: func() {
		if stopped {
			return
		}
		stopped = true
		close(stop)
		if err := <-worked; err != nil {
			l.Errorf("the controller ended with %v", err)
		}
		end()
		<-cached
	}}
	l.Cleanup(r.stop)
	return r
}

func clientsFor(config *rest.Config) informers.Clients {
	return informers.Clients{
		Typed:    kubernetes.NewForConfigOrDie(config),
		Dynamic:  dynamic.NewForConfigOrDie(config),
		Metadata: metadata.NewForConfigOrDie(config),
	}
}

// apiNode makes a Node without a machine. Pods that name it are bound to it and never run.
func (l *lab) apiNode() string {
	l.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: l.namespace + "-"}}
	node, err := l.client.CoreV1().Nodes().Create(l.Context(), node, metav1.CreateOptions{})
	l.must(err)
	const ready = `{"status":{"allocatable":{"cpu":"4","pods":"50"},"capacity":{"cpu":"4","pods":"50"},"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2100-01-01T00:00:00Z"}]}}`
	_, err = l.client.CoreV1().Nodes().Patch(l.Context(), node.Name, types.MergePatchType, []byte(ready), metav1.PatchOptions{}, "status")
	l.must(err)
	l.Cleanup(func() {
		_ = l.client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
	})
	return node.Name
}

var interruption = corev1.Taint{Key: "spot-interruption", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// taint makes the node bear the interruption taint, or no longer.
func (l *lab) taint(node string, on bool) {
	l.Helper()
	l.eventually("tainting "+node, func(ctx context.Context) (bool, error) {
		n, err := l.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		var taints []corev1.Taint
		for _, t := range n.Spec.Taints {
			if t.Key != interruption.Key {
				taints = append(taints, t)
			}
		}
		if on {
			taints = append(taints, interruption)
		}
		n.Spec.Taints = taints
		_, err = l.client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func podSpec(node string) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}
}

// barePod makes a pod that nothing owns.
func (l *lab) barePod(name, node string) *corev1.Pod {
	l.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}, Spec: podSpec(node)}
	pod, err := l.client.CoreV1().Pods(l.namespace).Create(l.Context(), pod, metav1.CreateOptions{})
	l.must(err)
	return pod
}

// replicaSet makes one with a pod on the node and returns the pod's name.
func (l *lab) replicaSet(name, node string) string {
	l.Helper()
	return l.replicaSetOf(name, podSpec(node))
}

func (l *lab) replicaSetOf(name string, spec corev1.PodSpec) string {
	l.Helper()
	labels := map[string]string{"rs": name}
	_, err := l.client.AppsV1().ReplicaSets(l.namespace).Create(l.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	l.must(err)
	pod := ""
	l.eventually("the pod of ReplicaSet "+name, func(ctx context.Context) (bool, error) {
		pods, err := l.client.CoreV1().Pods(l.namespace).List(ctx, metav1.ListOptions{LabelSelector: "rs=" + name})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		pod = pods.Items[0].Name
		return true, nil
	})
	return pod
}

// mark returns the text of a pod's marker.
func (l *lab) mark(pod string) (text string, marked bool) {
	l.Helper()
	p, err := l.client.CoreV1().Pods(l.namespace).Get(l.Context(), pod, metav1.GetOptions{})
	l.must(err)
	text, marked = p.Annotations[domain.AtRisk]
	return text, marked
}

func (l *lab) waitMark(pod string, want bool) (text string) {
	l.Helper()
	l.eventually(fmt.Sprintf("marker on %s: %v", pod, want), func(context.Context) (bool, error) {
		var marked bool
		text, marked = l.mark(pod)
		return marked == want, nil
	})
	return text
}

// forge writes an annotation by hand.
func (l *lab) forge(pod, text string) {
	l.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{domain.AtRisk: text}}})
	l.must(err)
	_, err = l.client.CoreV1().Pods(l.namespace).Patch(l.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

// events lists the names of rollcall's Events with the reason on the object.
func (l *lab) events(namespace, object, reason string) []corev1.Event {
	l.Helper()
	list, err := l.client.CoreV1().Events(namespace).List(l.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + object + ",reason=" + reason})
	l.must(err)
	return list.Items
}

func (l *lab) waitEvent(namespace, object, reason string) corev1.Event {
	l.Helper()
	var found []corev1.Event
	l.eventually("Event "+reason+" on "+object, func(context.Context) (bool, error) {
		found = l.events(namespace, object, reason)
		return len(found) > 0, nil
	})
	if len(found) > 1 {
		l.Errorf("%d Events %s on %s, want one", len(found), reason, object)
	}
	return found[0]
}

// settled waits until the controller has done all that it was given: a bare pod made last on a tainted node is marked, and
// one node later is looked at after everything before it.
func (l *lab) settled() {
	l.Helper()
	node := l.apiNode()
	l.barePod("sentinel-"+node, node)
	l.taint(node, true)
	l.waitMark("sentinel-"+node, true)
	l.taint(node, false)
	l.waitMark("sentinel-"+node, false)
}

// writes counts the controller's write requests by what they wrote.
func (l *lab) writes(r running) map[string]int {
	l.Helper()
	writes, err := l.cluster.Writes(r.agent)
	l.must(err)
	return writes
}

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
