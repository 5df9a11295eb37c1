package book

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/readiness"
)

const (
	node       = "book"
	namespace  = "kube-system"
	mirrorName = "proxy-" + node
	bootID     = "boot-of-" + node
	manifest   = `apiVersion: v1
kind: Pod
metadata: {name: proxy, namespace: kube-system}
spec: {hostNetwork: true, containers: [{name: c, image: "proxy:1", resources: {requests: {cpu: 100m}}}]}
`
)

// A book is one node with one static pod, and rollcall's programs beside it.
type book struct {
	*testing.T
	cluster  *livecluster.Cluster
	client   kubernetes.Interface
	programs *liverollcall.Binaries
	machine  *livecluster.Machine
	start    time.Time

	mu      sync.Mutex
	story   []string // guarded by mu; the condition, each time that it changed
	tainted bool     // guarded by mu; the node bears the taint
	taints  int      // guarded by mu; versions of the node seen with it
}

func openBook(t *testing.T) *book {
	t.Helper()
	b := &book{T: t, cluster: livecluster.Shared(t), start: time.Now()}
	b.client = kubernetes.NewForConfigOrDie(b.cluster.Config())
	var err error
	b.programs, err = liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller, liverollcall.Agent, liverollcall.Plugin)
	b.must(err)
	controller, err := b.programs.Controller(t.Context(), b.cluster)
	b.must(err)
	b.Cleanup(controller.Stop)
	b.watch()
	directory := t.TempDir()
	b.must(os.WriteFile(filepath.Join(directory, "proxy.yaml"), []byte(manifest), 0o600))
	b.machine, err = b.cluster.AddNode(t.Context(), livecluster.Node{
		Name: node, StaticPods: directory, BootID: bootID, Taints: []string{readiness.TaintKey + "=pending:NoSchedule"},
	})
	b.must(err)
	agent, err := b.programs.Agent(b.cluster, b.machine, bootID)
	b.must(err)
	b.Cleanup(agent.Stop)
	return b
}

func (b *book) manifest() string { return filepath.Join(b.machine.StaticPods, "proxy.yaml") }

func (b *book) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *book) step(text string) { b.Logf("%5.1fs  %s", time.Since(b.start).Seconds(), text) }

func (b *book) eventually(what string, holds func() bool) {
	b.Helper()
	err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		b.Fatalf("%s: %v; the condition was: %v", what, err, b.told())
	}
}

// watch notes how the node changes, from before it is there.
func (b *book) watch() {
	b.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()
	}))
	informer := factory.Core().V1().Nodes().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: b.see, UpdateFunc: func(_, object any) { b.see(object) }})
	b.must(err)
	factory.Start(b.Context().Done())
	b.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(b.Context().Done(), informer.HasSynced) {
		b.Fatal("the watch did not begin")
	}
}

func (b *book) see(object any) {
	seen := object.(*corev1.Node)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tainted = readiness.DefaultTaint.On(seen); b.tainted {
		b.taints++
	}
	if c := readiness.ConditionOf(seen, readiness.DefaultCondition); c != nil {
		if text := fmt.Sprintf("%s %s", c.Status, c.Reason); len(b.story) == 0 || b.story[len(b.story)-1] != text {
			b.story = append(b.story, text)
		}
	}
}

// follow forgets what was noted so far, but for what the condition says now.
func (b *book) follow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.story, b.taints = b.story[len(b.story)-1:], 0
}

// told is what the condition said, in order, since follow.
func (b *book) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.story)
}

// held tells whether the node bears the taint, wasHeld whether it did at any time since follow.
func (b *book) held() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tainted
}

func (b *book) wasHeld() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taints > 0
}

// says waits until the condition says so now.
func (b *book) says(status corev1.ConditionStatus, reason string) {
	b.Helper()
	b.eventually(fmt.Sprintf("condition %s %s", status, reason), func() bool {
		c := readiness.ConditionOf(b.node(), readiness.DefaultCondition)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

func (b *book) node() *corev1.Node {
	b.Helper()
	object, err := b.client.CoreV1().Nodes().Get(b.Context(), node, metav1.GetOptions{})
	b.must(err)
	return object
}

// release takes the taint away, as the Node Readiness Controller does, and waits until that is seen.
func (b *book) release() {
	b.Helper()
	b.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		held := b.node()
		held.Spec.Taints = readiness.DefaultTaint.Without(held)
		_, err := b.client.CoreV1().Nodes().Update(b.Context(), held, metav1.UpdateOptions{})
		return err
	}))
	b.eventually("the release is seen", func() bool { return !b.held() })
}

// mirror is the mirror pod, or nil.
func (b *book) mirror() *corev1.Pod {
	b.Helper()
	pod, err := b.client.CoreV1().Pods(namespace).Get(b.Context(), mirrorName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.must(err)
	return pod
}

// mirrorOtherThan waits for a mirror of another UID that is not Terminating, and returns its UID.
func (b *book) mirrorOtherThan(uid types.UID) (other types.UID) {
	b.Helper()
	b.eventually("a mirror", func() bool {
		pod := b.mirror()
		if pod == nil || pod.UID == uid || pod.DeletionTimestamp != nil {
			return false
		}
		other = pod.UID
		return pod.Annotations[corev1.MirrorPodAnnotationKey] != ""
	})
	return other
}

func (b *book) deleteMirror(o metav1.DeleteOptions) {
	b.Helper()
	b.must(b.client.CoreV1().Pods(namespace).Delete(b.Context(), mirrorName, o))
}

// verdictIsStatic asks the plugin.
func (b *book) verdictIsStatic() {
	b.Helper()
	if !slices.Contains(b.verdicts(), mirrorName+" Static MirrorPod") {
		b.Errorf("the verdicts are %v", b.verdicts())
	}
}

// verdicts are those of the node's pods, as name, verdict and reason.
func (b *book) verdicts() (verdicts []string) {
	b.Helper()
	out, err := b.programs.Ask(b.Context(), b.cluster, "check", node, "-o", "json")
	b.must(err)
	var report struct {
		Nodes []struct {
			Pods []struct{ Name, Verdict, Reason string }
		}
	}
	b.must(json.Unmarshal(out, &report))
	for _, n := range report.Nodes {
		for _, pod := range n.Pods {
			verdicts = append(verdicts, pod.Name+" "+pod.Verdict+" "+pod.Reason)
		}
	}
	return verdicts
}

// staticPods asks the kubelet.
func (b *book) staticPods() (static []corev1.Pod) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/pods", b.machine.Port), nil)
	b.must(err)
	response, err := http.DefaultClient.Do(request)
	b.must(err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	b.must(err)
	var list corev1.PodList
	b.must(json.Unmarshal(data, &list))
	for _, pod := range list.Items {
		if readiness.IsStatic(&pod) {
			static = append(static, pod)
		}
	}
	return static
}

// container is what the static pod runs as.
type container struct {
	image, id string
	restarts  int32
}

// container waits until the static pod's container runs.
func (b *book) container() (c container) {
	b.Helper()
	b.eventually("the container runs", func() bool {
		static := b.staticPods()
		if len(static) != 1 || len(static[0].Status.ContainerStatuses) != 1 || static[0].Status.ContainerStatuses[0].State.Running == nil {
			return false
		}
		status := static[0].Status.ContainerStatuses[0]
		c = container{static[0].Spec.Containers[0].Image, status.ContainerID, status.RestartCount}
		return true
	})
	return c
}

// kubeletHasSeenAll waits until the kubelet has heard of every change to its pods so far: it runs a pod that was made
// after them, and hears of pods in the API server's order.
func (b *book) kubeletHasSeenAll() {
	b.Helper()
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(b.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "after-"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}, metav1.CreateOptions{})
	b.must(err)
	b.eventually("a later pod runs", func() bool {
		now, err := pods.Get(b.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodRunning
	})
}
