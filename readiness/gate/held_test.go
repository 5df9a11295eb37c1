package gate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// gauge reads the metrics of a gate: the value of the series of that name whose labels contain all the given ones.
func gauge(t testing.TB, m *metrics.Metrics, name string, labels map[string]string) (value float64, there bool) {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, series := range family.GetMetric() {
			got := map[string]string{}
			for _, pair := range series.GetLabel() {
				got[pair.GetName()] = pair.GetValue()
			}
			for label, want := range labels {
				if got[label] != want {
					continue series
				}
			}
			return series.GetGauge().GetValue(), true
		}
	}
	return 0, false
}

// told counts the Events of one reason about the node that have all the texts.
func (n *node) told(ctx context.Context, reason string, texts ...string) (count int, err error) {
	list, err := n.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + n.name + ",reason=" + reason})
	if err != nil {
		return 0, err
	}
	for _, event := range list.Items {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(event.Message, text) }) {
			count++
		}
	}
	return count, nil
}

// tells waits for such an Event.
func (n *node) tells(reason string, texts ...string) {
	n.Helper()
	n.eventually(fmt.Sprintf("an Event %s with %q", reason, texts), func(ctx context.Context) (bool, error) {
		count, err := n.told(ctx, reason, texts...)
		return count > 0, err
	})
}

// A static pod that can never be mirrored holds its node; the condition, an Event and a metric name the pod and what the
// API server says of its namespace. Once it is mirrored, all of that ends.
func TestHeldForEver(t *testing.T) {
	l := newLab(t)
	absent := "absent-" + l.namespace
	r := l.start(func(o *gate.Options, _ *rest.Config) { o.HeldWarning, o.ReleaseTaint = time.Second, true })
	n := &node{&lab{TB: t, cluster: l.cluster, client: l.client, namespace: absent}, l.namespace + "-a"}
	n.create()
	n.expect(map[string]string{"tunnel": "t1"})
	key, cause := absent+"/"+n.pod("tunnel"), "namespace "+absent+" does not exist"
	n.tells(readiness.NotMirrored, readiness.MirrorMissing, key, cause)
	if c := n.becomes(corev1.ConditionFalse, readiness.MirrorMissing); !strings.Contains(c.Message, key) || !strings.Contains(c.Message, cause) {
		t.Errorf("the message is %q", c.Message)
	}
	series := map[string]string{"node": n.name, "namespace": absent, "pod": n.pod("tunnel"), "reason": readiness.MirrorMissing, "cause": gate.NamespaceNotFound}
	if value, there := gauge(t, r.metrics, "rollcall_node_held_info", series); !there || value != 1 {
		t.Errorf("rollcall_node_held_info: %v %t", value, there)
	}
	if value, _ := gauge(t, r.metrics, "rollcall_nodes_held", map[string]string{"reason": readiness.MirrorMissing}); value != 1 {
		t.Errorf("rollcall_nodes_held is %v", value)
	}
	if !readiness.DefaultTaint.On(n.get()) {
		t.Error("the node is not held")
	}

	_, err := l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: absent}}, metav1.CreateOptions{})
	l.must(err)
	t.Cleanup(func() {
		_ = l.client.CoreV1().Namespaces().Delete(context.Background(), absent, metav1.DeleteOptions{})
	})
	n.mirror("tunnel", "t1")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	n.eventually("the node is released and no longer counted", func(context.Context) (bool, error) {
		_, there := gauge(t, r.metrics, "rollcall_node_held_info", map[string]string{"node": n.name})
		return !there && !readiness.DefaultTaint.On(n.get()), nil
	})
	if count, err := n.told(t.Context(), readiness.NotMirrored, key); err != nil || count != 1 {
		t.Errorf("%d Events: %v", count, err)
	}
	// Who does not lead describes nothing.
	r.stop()
	if _, there := gauge(t, r.metrics, "rollcall_nodes_held", nil); there {
		t.Error("rollcall_nodes_held is there without a leader")
	}
}

// A node that is True and keeps its taint, because nobody takes it, is told about too.
func TestNobodyTakesTheTaint(t *testing.T) {
	l := newLab(t)
	r := l.start(func(o *gate.Options, _ *rest.Config) { o.HeldWarning = time.Second })
	n := l.node("a")
	n.expect(nil)
	n.becomes(corev1.ConditionTrue, readiness.NoStaticPods)
	n.tells(gate.TaintNotRemoved, readiness.DefaultCondition, readiness.TaintKey, "--release-taint")
	if value, _ := gauge(t, r.metrics, "rollcall_nodes_held", map[string]string{"reason": readiness.NoStaticPods}); value != 1 {
		t.Errorf("rollcall_nodes_held is %v", value)
	}
	n.patch(`{"spec":{"taints":null}}`)
	n.eventually("it is no longer counted", func(context.Context) (bool, error) {
		value, _ := gauge(t, r.metrics, "rollcall_nodes_held", map[string]string{"reason": readiness.NoStaticPods})
		return value == 0, nil
	})
}

// A dry run says each thing once and writes nothing.
func TestDryRun(t *testing.T) {
	l := newLab(t)
	r := l.start(func(o *gate.Options, _ *rest.Config) { o.DryRun, o.ReleaseTaint = true, true })
	n := l.named("a")
	n.create(n.publishedSet("proxy", "p1"))
	says := func(what string, count int) {
		t.Helper()
		n.eventually(what, func(context.Context) (bool, error) { return r.seen.decided(n.name, what) == count, nil })
	}
	says(gate.DecidedCondition, 1)
	n.mirror("proxy", "p1")
	says(gate.DecidedCondition, 2)
	says(gate.DecidedRelease, 1)
	looks := r.seen.looked(n.name)
	n.patch(`{"spec":{"taints":[{"key":"` + readiness.TaintKey + `","effect":"NoSchedule"},{"key":"example.com/other","effect":"NoSchedule"}]}}`)
	n.eventually("another look", func(context.Context) (bool, error) { return r.seen.looked(n.name) > looks, nil })
	says(gate.DecidedCondition, 2)
	says(gate.DecidedRelease, 1)
	if writes := l.writes(r); writes != 0 {
		t.Errorf("%d writes", writes)
	}
}

// syncBuffer is a log that several write to.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Missing rights are named, the rest goes on, and a right that is given is used.
func TestMissingRights(t *testing.T) {
	l := newLab(t)
	log, before := &syncBuffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	user := "limited-" + l.namespace
	grant(l, user, rbacv1.PolicyRule{APIGroups: []string{"", "apps", "batch"}, Verbs: []string{"get", "list", "watch"},
		Resources: []string{"pods", "nodes", "replicationcontrollers", "replicasets", "statefulsets", "daemonsets", "jobs"}})
	r := l.start(func(o *gate.Options, config *rest.Config) {
		config.Impersonate.UserName = user
		o.ReleaseTaint, o.HeldWarning = true, time.Second
	})
	n := l.node("a")
	n.expect(map[string]string{"proxy": "p1"})
	said := func(text string) {
		t.Helper()
		l.eventually(text, func(context.Context) (bool, error) { return strings.Contains(log.String(), text), nil })
	}
	said("not allowed to patch nodes/status")
	grant(l, user+"-status", rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"patch"}, Resources: []string{"nodes/status"}}, user)
	l.eventually("the condition is written once that is allowed", func(ctx context.Context) (bool, error) {
		n.expect(map[string]string{"proxy": "p" + fmt.Sprint(time.Now().UnixNano())}) // wakes it
		return readiness.ConditionOf(n.get(), readiness.DefaultCondition) != nil, nil
	})
	said("not allowed to get namespaces")
	said("not allowed to create events")
	n.expect(map[string]string{"proxy": "p1"})
	n.mirror("proxy", "p1")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	said("not allowed to patch nodes:")
	if !readiness.DefaultTaint.On(n.get()) || r.seen.decided(n.name, gate.DecidedRelease) != 0 {
		t.Error("released without the right")
	}
}

// grant gives rights to a user; under the name of a role.
func grant(l *lab, role string, rule rbacv1.PolicyRule, users ...string) {
	l.Helper()
	if len(users) == 0 {
		users = []string{role}
	}
	_, err := l.client.RbacV1().ClusterRoles().Create(l.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	l.must(err)
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user})
	}
	_, err = l.client.RbacV1().ClusterRoleBindings().Create(l.Context(), binding, metav1.CreateOptions{})
	l.must(err)
	l.Cleanup(func() {
		_ = l.client.RbacV1().ClusterRoleBindings().Delete(context.Background(), role, metav1.DeleteOptions{})
		_ = l.client.RbacV1().ClusterRoles().Delete(context.Background(), role, metav1.DeleteOptions{})
	})
}

// A node that a gate no longer watches over is told to have left: the Node is gone, or released without an annotation.
func TestLeft(t *testing.T) {
	l := newLab(t)
	r := l.start(nil)
	gone, plain := l.node("gone"), l.node("plain")
	gone.becomes(corev1.ConditionUnknown, readiness.KubeletNotReady)
	plain.becomes(corev1.ConditionUnknown, readiness.KubeletNotReady)
	l.must(l.client.CoreV1().Nodes().Delete(t.Context(), gone.name, metav1.DeleteOptions{}))
	_, err := l.client.CoreV1().Nodes().Patch(t.Context(), plain.name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	l.must(err)
	l.eventually("both left", func(context.Context) (bool, error) {
		r.seen.mu.Lock()
		defer r.seen.mu.Unlock()
		return len(r.seen.left) == 2, nil
	})
}
