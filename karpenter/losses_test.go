package karpenter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/losses"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// A ledger is a lab in which losses are recorded.
type ledger struct {
	*lab
	dynamic dynamic.Interface
}

func newLedger(t *testing.T, perNamespace int) *ledger {
	t.Helper()
	l := &ledger{lab: newLab(t)}
	l.dynamic = dynamic.NewForConfigOrDie(l.cluster.Config())
	l.configure = func(o *karpenter.Options) {
		o.Losses = karpenter.LossOptions{Retention: time.Hour, PerNamespace: perNamespace}
	}
	return l
}

// install makes the API server serve PodLoss, until the test ends or the result is called.
func (l *ledger) install() (remove func()) {
	l.Helper()
	root, err := livecluster.Root()
	l.must(err)
	text, err := os.ReadFile(filepath.Join(root, "deploy/crds/podlosses.yaml"))
	l.must(err)
	text, err = yaml.YAMLToJSON(text)
	l.must(err)
	crd := &unstructured.Unstructured{}
	l.must(crd.UnmarshalJSON(text))
	_, err = l.dynamic.Resource(crds).Create(l.Context(), crd, metav1.CreateOptions{})
	l.must(err)
	remove = func() {
		ctx := context.Background()
		_ = l.dynamic.Resource(crds).Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err := l.dynamic.Resource(crds).Get(ctx, crd.GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
				return
			}
		}
	}
	l.Cleanup(remove)
	l.eventually("PodLoss is served", func(ctx context.Context) (bool, error) {
		_, err := losses.List(ctx, l.dynamic, l.namespace)
		return err == nil, nil
	})
	return remove
}

func (l *ledger) records() []*v1alpha1.PodLoss {
	l.Helper()
	records, err := losses.List(l.Context(), l.dynamic, l.namespace)
	l.must(err)
	return records
}

// waitRecord waits for the one record of the pod to be in the state.
func (l *ledger) waitRecord(pod *corev1.Pod, state v1alpha1.LossState) (found *v1alpha1.PodLoss) {
	l.Helper()
	l.eventually(fmt.Sprintf("record of %s %s", pod.Name, state), func(context.Context) (bool, error) {
		found = nil
		for _, record := range l.records() {
			if record.Spec.Pod.UID != pod.UID {
				continue
			}
			if found != nil {
				l.Fatalf("%s has two records", pod.Name)
			}
			found = record
		}
		return found != nil && found.Status.State == state, nil
	})
	return found
}

func (l *ledger) delete(pod string) {
	l.Helper()
	zero := int64(0)
	l.must(l.client.CoreV1().Pods(l.namespace).Delete(l.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
}

// A lost bare pod has its record, its Event and its count, and what is printed of it brings it back.
func TestLossIsRecordedAndUndone(t *testing.T) {
	l := newLedger(t, 100)
	l.install()
	measures := karpenter.NewMetrics("test", karpenter.DefaultConfig())
	base := l.configure
	l.configure = func(o *karpenter.Options) { base(o); o.Metrics = measures }
	node := l.apiNode()
	pod, err := l.client.CoreV1().Pods(l.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: map[string]string{"app": "bare"}, Annotations: map[string]string{"example.com/team": "a"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}},
	}, metav1.CreateOptions{})
	l.must(err)
	l.startController(nil)
	l.taint(node, true)
	opened := l.waitRecord(pod, v1alpha1.Open)
	if s := opened.Spec; s.Node != node || s.Reason != "NoController" || s.Cause != interruption.Key || s.State != "Committed" || s.Deadline == nil || s.Owner != "" {
		t.Errorf("record %+v", s)
	}
	l.delete("bare")
	closed := l.waitRecord(pod, v1alpha1.Closed)
	if closed.Status.LostAt == nil || closed.Status.LostAtEstimated || closed.Name != opened.Name {
		t.Errorf("record %+v", closed)
	}
	l.waitEvent(l.namespace, "bare", karpenter.PodLost)
	families, err := measures.Gatherer().Gather()
	l.must(err)
	if text := fmt.Sprint(families); !strings.Contains(text, "rollcall_pods_lost_total") || !strings.Contains(text, "rollcall_mark_latency_seconds") {
		t.Errorf("metrics: %s", text)
	}

	var printed strings.Builder
	report := losses.NewReport(l.records(), losses.Watched{}, time.Time{}, time.Now(), false)
	l.must(report.Write(&printed, "yaml"))
	l.apply(printed.String())
	again, err := l.client.CoreV1().Pods(l.namespace).Get(t.Context(), "bare", metav1.GetOptions{})
	l.must(err)
	if again.UID == pod.UID || again.Labels["app"] != "bare" || again.Annotations["example.com/team"] != "a" ||
		again.Spec.Containers[0].Env[0].Value != "b" || len(again.Spec.Volumes) > 1 {
		t.Errorf("what came back: %+v", again)
	}
	if text, marked := l.mark("bare"); marked {
		t.Errorf("it came back marked: %s", text)
	}
}

// apply does what kubectl apply --server-side -f - does.
func (l *ledger) apply(documents string) {
	l.Helper()
	applied := 0
	for document := range strings.SplitSeq(documents, "\n---\n") {
		text, err := yaml.YAMLToJSON([]byte(document))
		l.must(err)
		object := &unstructured.Unstructured{}
		if string(text) == "null" {
			continue
		}
		l.must(object.UnmarshalJSON(text))
		pods := l.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(object.GetNamespace())
		_, err = pods.Patch(l.Context(), object.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "kubectl"})
		l.must(err)
		applied++
	}
	if applied == 0 {
		l.Errorf("nothing to apply in\n%s", documents)
	}
}

// A record follows the marker to and fro, and is one record.
func TestLossIsWithdrawn(t *testing.T) {
	l := newLedger(t, 100)
	l.install()
	node := l.apiNode()
	pod := l.barePod("bare", node)
	l.startController(nil)
	l.taint(node, true)
	l.waitRecord(pod, v1alpha1.Open)
	l.taint(node, false)
	if record := l.waitRecord(pod, v1alpha1.Withdrawn); record.Status.WithdrawnAt == nil || record.Status.LostAt != nil {
		t.Errorf("record %+v", record.Status)
	}
	l.taint(node, true)
	if record := l.waitRecord(pod, v1alpha1.Open); record.Status.WithdrawnAt != nil || len(record.Spec.Manifest) == 0 {
		t.Errorf("record %+v", record)
	}
	// A pod that finishes by itself is no loss, deleted or not.
	_, err := l.client.CoreV1().Pods(l.namespace).Patch(t.Context(), "bare", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	l.must(err)
	l.waitRecord(pod, v1alpha1.Withdrawn)
}

// An eviction ends in phase Failed with DisruptionTarget: that is the loss, whatever becomes of the object.
func TestEvictedIsLost(t *testing.T) {
	l := newLedger(t, 100)
	l.install()
	node := l.apiNode()
	pod := l.barePod("bare", node)
	l.startController(nil)
	l.taint(node, true)
	l.waitRecord(pod, v1alpha1.Open)
	const failed = `{"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI"}]}}`
	_, err := l.client.CoreV1().Pods(l.namespace).Patch(t.Context(), "bare", types.StrategicMergePatchType, []byte(failed), metav1.PatchOptions{}, "status")
	l.must(err)
	first := l.waitRecord(pod, v1alpha1.Closed)
	l.delete("bare")
	l.settled()
	if last := l.waitRecord(pod, v1alpha1.Closed); last.ResourceVersion != first.ResourceVersion {
		t.Errorf("a closed record was written again: %+v", last)
	}
	l.waitEvent(l.namespace, "bare", karpenter.PodLost)
}

// An executor on a node that stays is lost with its driver: the driver's object goes first, and the garbage collector comes
// to the executor after the controller has seen that.
func TestCollateralIsRecorded(t *testing.T) {
	l := newLedger(t, 100)
	l.install()
	going, staying := l.apiNode(), l.apiNode()
	driver := l.barePod("driver", going)
	executor, err := l.client.CoreV1().Pods(l.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "executor", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: driver.Name, UID: driver.UID}}},
		Spec:       podSpec(staying),
	}, metav1.CreateOptions{})
	l.must(err)
	l.startController(nil)
	l.taint(going, true)
	l.waitRecord(executor, v1alpha1.Open)
	l.delete("driver")
	l.eventually("the garbage collector marks the executor for deletion", func(ctx context.Context) (bool, error) {
		pod, err := l.client.CoreV1().Pods(l.namespace).Get(ctx, "executor", metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil, unlessGone(err)
	})
	zero := int64(0) // what its kubelet would do
	l.must(unlessGone(l.client.CoreV1().Pods(l.namespace).Delete(t.Context(), "executor", metav1.DeleteOptions{GracePeriodSeconds: &zero})))
	if record := l.waitRecord(executor, v1alpha1.Closed); record.Spec.Node != going || record.Spec.RunsOn != staying || record.Spec.Reason != "OwnerPodLost" {
		t.Errorf("record %+v", record.Spec)
	}
	l.waitEvent(l.namespace, "executor", karpenter.PodLost)
}

// unlessGone is the error, unless it says that there is no such object.
func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// A pod whose containers end on the deletion's SIGTERM is lost: its kubelet writes that they ended before it lets the object
// go, and that is no end of its own.
func TestStoppedPodIsLost(t *testing.T) {
	l := newLedger(t, 1000)
	l.install()
	l.startController(nil)
	node := l.namespace
	machine, err := l.cluster.AddNode(t.Context(), livecluster.Node{Name: node})
	l.must(err)
	t.Cleanup(func() { _ = l.cluster.KillNode(context.Background(), machine.Name) })
	for _, name := range []string{"first", "second"} {
		pod := l.barePod(name, node)
		l.eventually("the start of "+name, func(ctx context.Context) (bool, error) {
			p, err := l.client.CoreV1().Pods(l.namespace).Get(ctx, name, metav1.GetOptions{})
			return err == nil && p.Status.Phase == corev1.PodRunning, err
		})
		l.taint(node, true)
		l.waitRecord(pod, v1alpha1.Open)
		grace := int64(1)
		l.must(l.client.CoreV1().Pods(l.namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
		l.waitRecord(pod, v1alpha1.Closed)
		l.taint(node, false)
	}
}

// What happened while no controller ran is found after a restart: a pod that is gone is lost, before a time that is only
// a bound; one that lives without its marker is not.
func TestRecordsAfterRestart(t *testing.T) {
	l := newLedger(t, 100)
	l.install()
	going, staying := l.apiNode(), l.apiNode()
	gone, spared := l.barePod("gone", going), l.barePod("spared", staying)
	first := l.startController(nil)
	l.taint(going, true)
	l.taint(staying, true)
	l.waitRecord(gone, v1alpha1.Open)
	l.waitRecord(spared, v1alpha1.Open)
	first.stop()
	l.delete("gone")
	l.barePod("gone", going) // another pod of that name is not the one that was lost
	l.taint(staying, false)

	l.startController(nil)
	if record := l.waitRecord(gone, v1alpha1.Closed); !record.Status.LostAtEstimated {
		t.Errorf("record %+v", record.Status)
	}
	l.waitRecord(spared, v1alpha1.Withdrawn)
	l.eventually("Event Lost", func(context.Context) (bool, error) {
		return len(l.events(l.namespace, "gone", karpenter.PodLost)) == 1, nil
	})
}

// Records are bounded by number; those of pods that went within moments of their mark are complete.
func TestRecordsAreBounded(t *testing.T) {
	l := newLedger(t, 2)
	l.install()
	node := l.apiNode()
	l.startController(nil)
	l.taint(node, true)
	var last *v1alpha1.PodLoss
	for i := range 5 {
		name := fmt.Sprint("bare-", i)
		pod := l.barePod(name, node)
		l.waitMark(name, true)
		l.delete(name)
		last = l.waitRecord(pod, v1alpha1.Closed)
		if !json.Valid(last.Spec.Manifest) {
			t.Errorf("no manifest of %s", name)
		}
	}
	l.eventually("two records", func(context.Context) (bool, error) { return len(l.records()) <= 2, nil })
}

// A log counts what is logged, by a part of the message.
type log struct {
	slog.Handler
	mu    sync.Mutex
	lines []string // guarded by mu
}

// listenToLog makes the log of this process a list, until the test ends.
func listenToLog(t *testing.T) *log {
	before := slog.Default()
	heard := &log{Handler: before.Handler()}
	slog.SetDefault(slog.New(heard))
	t.Cleanup(func() { slog.SetDefault(before) })
	return heard
}

func (h *log) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, r.Message)
	return nil
}

func (h *log) count(part string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// Without the CustomResourceDefinition marks are made all the same, and one notice says what is missing. Once it is there,
// what is at risk is recorded; when it goes, the notice comes again, and marks go on.
func TestRecordsWithoutDefinition(t *testing.T) {
	heard := listenToLog(t)
	const missing = "podlosses.rollcall.dev is not installed"
	l := newLedger(t, 100)
	node := l.apiNode()
	pod := l.barePod("bare", node)
	l.startController(nil)
	l.taint(node, true)
	l.waitMark("bare", true)
	l.eventually("a notice", func(context.Context) (bool, error) { return heard.count(missing) == 1, nil })

	remove := l.install()
	l.waitRecord(pod, v1alpha1.Open)
	if n := heard.count(missing); n != 1 {
		t.Errorf("%d notices", n)
	}
	remove()
	l.eventually("another notice", func(context.Context) (bool, error) { return heard.count(missing) == 2, nil })
	l.barePod("late", node)
	l.waitMark("late", true)
}

// asUser makes each request another user's.
type asUser struct {
	http.RoundTripper
	name string
}

func (u asUser) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Impersonate-User", u.name)
	return u.RoundTripper.RoundTrip(r)
}

// A controller that may not read records says so once, marks, and records once it may.
func TestRecordsRefused(t *testing.T) {
	heard := listenToLog(t)
	const refused = "not allowed to list podlosses"
	l := newLedger(t, 100)
	l.install()
	name := "limited-" + l.namespace
	all := []string{"*"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "batch"}, Resources: all, Verbs: all}}}
	role, err := l.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	l.must(err)
	_, err = l.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}}, metav1.CreateOptions{})
	l.must(err)
	node := l.apiNode()
	pod := l.barePod("bare", node)
	l.startController(func(next http.RoundTripper) http.RoundTripper { return asUser{next, name} })
	l.taint(node, true)
	l.waitMark("bare", true)
	l.eventually("a notice", func(context.Context) (bool, error) { return heard.count(refused) == 1, nil })
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: all, Verbs: all})
	_, err = l.client.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	l.must(err)
	l.waitRecord(pod, v1alpha1.Open)
	if n := heard.count(refused); n > 1 {
		t.Errorf("%d notices", n)
	}
}
