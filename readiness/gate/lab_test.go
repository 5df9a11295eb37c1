package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/readiness"
)

// patience bounds every wait: a loaded machine may be slow, and a test that holds does not wait.
const patience = time.Minute

// boot is the boot id of the lab's nodes.
const boot = "boot-1"

// A lab is a namespace on the shared control plane. Its nodes have no machines: the test is their kubelet and their agent.
type lab struct {
	testing.TB
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	namespace string
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{TB: t, cluster: livecluster.Shared(t)}
	l.client = kubernetes.NewForConfigOrDie(l.cluster.Config())
	l.namespace = l.newNamespace("lab-")
	return l
}

func (l *lab) newNamespace(prefix string) string {
	l.Helper()
	namespace, err := l.client.CoreV1().Namespaces().Create(l.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	l.must(err)
	l.Cleanup(func() {
		zero, ctx := int64(0), context.Background()
		_ = l.client.CoreV1().Pods(namespace.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
		_ = l.client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})
	})
	return namespace.Name
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

// A node is a Node without a machine.
type node struct {
	*lab
	name string
}

// node makes a Node that bears the readiness taint.
func (l *lab) node(suffix string, change ...func(*corev1.Node)) *node {
	l.Helper()
	n := l.named(suffix)
	n.create(change...)
	return n
}

// named is a node that has not joined yet.
func (l *lab) named(suffix string) *node { return &node{l, l.namespace + "-" + suffix} }

func (n *node) create(change ...func(*corev1.Node)) {
	n.Helper()
	object := n.fresh()
	for _, c := range change {
		c(object)
	}
	_, err := n.client.CoreV1().Nodes().Create(n.Context(), object, metav1.CreateOptions{})
	n.must(err)
	n.Cleanup(func() { _ = n.client.CoreV1().Nodes().Delete(context.Background(), n.name, metav1.DeleteOptions{}) })
}

// fresh is the Node as its kubelet registers it.
func (n *node) fresh() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: readiness.TaintKey, Value: "pending", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: boot},
			// Without a kubelet the node would be taken for a dead one.
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}},
		},
	}
}

// boot is the machine's boot, as its kubelet tells.
func (n *node) boot(id string) {
	n.Helper()
	n.patch(`{"status":{"nodeInfo":{"bootID":"`+id+`"}}}`, "status")
}

func (n *node) patch(patch string, subresources ...string) {
	n.Helper()
	_, err := n.client.CoreV1().Nodes().Patch(n.Context(), n.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"}, subresources...)
	n.must(err)
}

func (n *node) get() *corev1.Node {
	n.Helper()
	object, err := n.client.CoreV1().Nodes().Get(n.Context(), n.name, metav1.GetOptions{})
	n.must(err)
	return object
}

// expect publishes the static pods, by the lab's name for them and their hash.
func (n *node) expect(hashes map[string]string) { n.Helper(); n.publish(boot, hashes) }

func (n *node) publish(bootID string, hashes map[string]string) {
	n.Helper()
	value, err := n.set(bootID, hashes)
	n.must(err)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{readiness.StaticPodsAnnotation: value}}})
	n.must(err)
	_, err = n.client.CoreV1().Nodes().Patch(n.Context(), n.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "rollcall-agent"})
	n.must(err)
}

// publishedSet has a Node made with its set.
func (n *node) publishedSet(name, hash string) func(*corev1.Node) {
	n.Helper()
	value, err := n.set(boot, map[string]string{name: hash})
	n.must(err)
	return func(object *corev1.Node) {
		object.Annotations = map[string]string{readiness.StaticPodsAnnotation: value}
	}
}

// set is the annotation's value.
func (n *node) set(bootID string, hashes map[string]string) (string, error) {
	expected := readiness.Expected{Source: "test", BootID: bootID, Observed: time.Now()}
	for _, name := range slices.Sorted(maps.Keys(hashes)) {
		expected.Pods = append(expected.Pods, readiness.StaticPod{
			Namespace: n.namespace, Name: n.pod(name), Hash: hashes[name], CPU: resource.MustParse("100m"), Memory: resource.MustParse("0"),
		})
	}
	return expected.Encode("test")
}

func (n *node) pod(name string) string { return name + "-" + n.name }

// mirror makes the mirror of a static pod.
func (n *node) mirror(name, hash string, change ...func(*corev1.Pod)) *corev1.Pod {
	n.Helper()
	pod, err := n.client.CoreV1().Pods(n.namespace).Create(n.Context(), n.mirrorOf(n.get().UID, name, hash, change...), metav1.CreateOptions{})
	n.must(err)
	return pod
}

func (n *node) mirrorOf(owner types.UID, name, hash string, change ...func(*corev1.Pod)) *corev1.Pod {
	isController := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: n.namespace, Name: n.pod(name),
			Annotations:     map[string]string{corev1.MirrorPodAnnotationKey: hash},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: owner, Controller: &isController}},
		},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{
			Name: "c", Image: "i:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
		}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// unmirror removes a pod from the API at once.
func (n *node) unmirror(name string) {
	n.Helper()
	zero := int64(0)
	err := n.client.CoreV1().Pods(n.namespace).Delete(n.Context(), n.pod(name), metav1.DeleteOptions{GracePeriodSeconds: &zero})
	if !apierrors.IsNotFound(err) {
		n.must(err)
	}
}

// becomes waits for the condition and returns it.
func (n *node) becomes(status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	n.Helper()
	var found corev1.NodeCondition
	n.eventually(fmt.Sprintf("%s becomes %s %s", n.name, status, reason), func(ctx context.Context) (bool, error) {
		object, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		c := readiness.ConditionOf(object, readiness.DefaultCondition)
		if c == nil || c.Status != status || c.Reason != reason {
			return false, nil
		}
		found = *c
		return true, nil
	})
	return found
}

// history is the status and reason of a node's condition, one after the other.
type history struct {
	mu     sync.Mutex
	states []string
}

func (n *node) follow() *history {
	n.Helper()
	h := &history{}
	n.watchNodes(func(object *corev1.Node) {
		if object.Name != n.name {
			return
		}
		state := "none"
		if c := readiness.ConditionOf(object, readiness.DefaultCondition); c != nil {
			state = string(c.Status) + " " + c.Reason
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.states) == 0 || h.states[len(h.states)-1] != state {
			h.states = append(h.states, state)
		}
	})
	return h
}

// watchNodes calls see with each version of each Node, one at a time, until the test ends.
func (l *lab) watchNodes(see func(*corev1.Node)) {
	l.Helper()
	factory := clientinformers.NewSharedInformerFactory(l.client, 0)
	registration, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { see(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { see(object.(*corev1.Node)) },
	})
	l.must(err)
	stop := make(chan struct{})
	factory.Start(stop)
	l.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(l.Context().Done(), registration.HasSynced) {
		l.Fatal("the nodes cannot be watched")
	}
}

func (h *history) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.states)
}
