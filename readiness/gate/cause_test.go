package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rollcall-dev/rollcall/internal/metrics"
)

func namespaceNamed(name string, change func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(n)
	return n
}

// What a namespace tells of mirrors that are missing; what cannot be read now stays as it was known.
func TestCauses(t *testing.T) {
	resource := schema.GroupResource{Resource: "namespaces"}
	client := fake.NewClientset(
		namespaceNamed("plain", func(*corev1.Namespace) {}),
		namespaceNamed("going", func(n *corev1.Namespace) { n.Status.Phase = corev1.NamespaceTerminating }),
		namespaceNamed("strict", func(n *corev1.Namespace) { n.Labels = map[string]string{podSecurityLevel: "restricted"} }),
		namespaceNamed("lax", func(n *corev1.Namespace) { n.Labels = map[string]string{podSecurityLevel: "privileged"} }),
	)
	asked := 0
	client.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		switch name := action.(clienttesting.GetAction).GetName(); name {
		case "secret":
			return true, nil, apierrors.NewForbidden(resource, name, errors.New("no"))
		case "trouble":
			return true, nil, apierrors.NewInternalError(errors.New("no"))
		}
		return false, nil, nil
	})
	refused := 0
	c := &causes{client: client, refused: func(verb, resource, _ string, _ error) {
		if verb == "get" && resource == "namespaces" {
			refused++
		}
	}}
	known := []cause{{"trouble", NamespaceNotFound, "as before"}, {"plain", NamespaceNotFound, "no longer"}}
	for _, test := range []struct {
		pods []string
		want []string // namespace and reason
	}{
		{nil, nil},
		{[]string{"plain/a", "lax/b"}, nil},
		{[]string{"none/a", "none/b"}, []string{"none " + NamespaceNotFound}},
		{[]string{"going/a"}, []string{"going " + NamespaceTerminating}},
		{[]string{"strict/a"}, []string{"strict "}},
		{[]string{"trouble/a"}, []string{"trouble " + NamespaceNotFound}},
		{[]string{"none/a", "secret/a"}, []string{"none " + NamespaceNotFound}},
	} {
		var got []string
		for _, found := range c.of(t.Context(), test.pods, known) {
			got = append(got, found.namespace+" "+found.reason)
			if found.text == "" {
				t.Errorf("%v: a cause without words", test.pods)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.pods, got, test.want)
		}
	}
	if refused != 1 {
		t.Errorf("a missing right was heard of %d times, want 1", refused)
	}
	asked = 0
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("n%02d/a", i))
	}
	if found := c.of(context.Background(), many, nil); len(found) != namespacesAsked || asked != namespacesAsked {
		t.Errorf("%d causes by %d requests, want %d", len(found), asked, namespacesAsked)
	}
}

// The metrics have the nodes that are held for longest first, each pod with the cause of its own namespace.
func TestHeldMetrics(t *testing.T) {
	start := time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	g := &Gate{known: map[string]*watch{
		"young": {long: &long{since: start.Add(time.Hour), reason: "MirrorStale", pods: []string{"a/x"}}},
		"old": {long: &long{since: start, reason: "MirrorMissing", pods: []string{"a/x", "b/y"}, causes: []cause{
			{"b", NamespaceNotFound, "t"},
		}}},
		"true":  {long: &long{since: start.Add(2 * time.Hour), reason: "AllMirrored"}},
		"quick": {},
	}}
	held := g.held()
	want := []metrics.HeldPod{
		{Node: "old", Namespace: "a", Pod: "x", Reason: "MirrorMissing"},
		{Node: "old", Namespace: "b", Pod: "y", Reason: "MirrorMissing", Cause: NamespaceNotFound},
		{Node: "young", Namespace: "a", Pod: "x", Reason: "MirrorStale"},
		{Node: "true", Reason: "AllMirrored"},
	}
	if !slices.Equal(held.Pods, want) {
		t.Errorf("got %+v, want %+v", held.Pods, want)
	}
	if len(held.Nodes) != 3 || held.Nodes["MirrorMissing"] != 1 {
		t.Errorf("nodes: %v", held.Nodes)
	}
}
