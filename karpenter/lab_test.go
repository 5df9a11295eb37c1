package karpenter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	"github.com/rollcall-dev/rollcall/internal/queue"
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
	// configure, where set, changes the options of the controllers that are started.
	configure func(*karpenter.Options)
}

func newLab(t testing.TB) *lab {
	t.Helper()
	cluster := livecluster.Shared(t)
	client := kubernetes.NewForConfigOrDie(cluster.Config())
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lab-"}}, metav1.CreateOptions{})
	l := &lab{TB: t, cluster: cluster, client: client}
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
	options := karpenter.Options{Disruption: karpenter.DefaultConfig(), Mark: mark, Queue: queue.New(queue.Options{}), Identity: "test"}
	if l.configure != nil {
		l.configure(&options)
	}
	_, err = karpenter.New(clients, set, options)
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
	go func() { worked <- options.Queue.Run(background, stop, 4) }()
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
// the marker removed. The key of a node that no longer goes is of the least urgent class, so it comes after all before it.
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
