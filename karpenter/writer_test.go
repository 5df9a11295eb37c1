package karpenter

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMarkPatch(t *testing.T) {
	for _, tc := range []struct{ text, version, want string }{
		{"x", "", `{"metadata":{"annotations":{"rollcall.dev/at-risk":"x"},"uid":"u"}}`},
		{"", "8", `{"metadata":{"annotations":{"rollcall.dev/at-risk":null},"resourceVersion":"8","uid":"u"}}`},
	} {
		if got := string(markPatch(markedPod("u", "", false), tc.text, tc.version)); got != tc.want || !json.Valid([]byte(got)) {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

func TestMarkOutcome(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	kind := schema.GroupKind{Kind: "Pod"}
	for name, tc := range map[string]struct {
		err     error
		outcome outcome
		failed  bool
	}{
		"written":         {nil, written, false},
		"gone":            {apierrors.NewNotFound(resource, "p"), anotherPod, false},
		"another UID":     {apierrors.NewInvalid(kind, "p", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "u", "field is immutable")}), anotherPod, false},
		"otherwise wrong": {apierrors.NewInvalid(kind, "p", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 1)}), 0, true},
		"conflict":        {apierrors.NewConflict(resource, "p", errors.New("busy")), 0, true},
		"forbidden":       {apierrors.NewForbidden(resource, "p", nil), 0, true},
		"trouble":         {fmt.Errorf("no route to host"), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.GetSubresource() != "status" {
					t.Errorf("patches pods/%s", action.GetSubresource())
				}
				return true, &corev1.Pod{}, tc.err
			})
			outcome, err := newStatusWriter(client).mark(t.Context(), markedPod("u", "", false), "x")
			if outcome != tc.outcome || (err != nil) != tc.failed {
				t.Errorf("got %v, %v", outcome, err)
			}
			if apierrors.IsForbidden(tc.err) != apierrors.IsForbidden(err) {
				t.Errorf("%v hides that it was forbidden", err)
			}
		})
	}
}

// An own write counts until the cache is as new as it is.
func TestCurrentSeesOwnWrites(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		pod := markedPod("u", "", false)
		pod.ResourceVersion = "10"
		return true, pod, nil
	})
	w := newStatusWriter(client)
	at := func(version, mark string) *corev1.Pod {
		pod := markedPod("u", mark, false)
		pod.ResourceVersion = version
		return pod
	}
	expect := func(pod *corev1.Pod, want string) {
		t.Helper()
		if got, marked := w.current(pod); got != want || marked != (want != "") {
			t.Errorf("at %s: %q, %v; want %q", pod.ResourceVersion, got, marked, want)
		}
	}
	expect(at("8", ""), "")
	if _, err := w.mark(t.Context(), at("8", ""), "x"); err != nil {
		t.Fatal(err)
	}
	expect(at("8", ""), "x")
	expect(at("9", "old"), "x")
	expect(at("11", ""), "") // somebody removed it
	expect(at("9", "old"), "old")
	if _, err := w.mark(t.Context(), at("9", "old"), ""); err != nil {
		t.Fatal(err)
	}
	expect(at("9", "old"), "")
	expect(at("10", ""), "")
}

// A removal names the resourceVersion that it rests on, a mark none; and a 409 to a removal is no error.
func TestRemovalRestsOnAVersion(t *testing.T) {
	client := fake.NewClientset()
	var (
		sent     string
		deleting bool
		answer   error
	)
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		sent = ""
		var patch struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			t.Error(err)
		}
		sent = patch.Metadata.ResourceVersion
		pod := markedPod("u", "x", deleting)
		pod.ResourceVersion = "10"
		return true, pod, answer
	})
	w := newStatusWriter(client)
	at := func(version string) *corev1.Pod {
		pod := markedPod("u", "x", false)
		pod.ResourceVersion = version
		return pod
	}
	expect := func(what string, pod *corev1.Pod, text, version string, want outcome) {
		t.Helper()
		if got, err := w.mark(t.Context(), pod, text); got != want || err != nil || sent != version {
			t.Errorf("%s: outcome %d, %v, with resourceVersion %q, want %d with %q", what, got, err, sent, want, version)
		}
	}
	expect("a removal", at("8"), "", "8", written)
	expect("a mark", at("8"), "x", "", written)
	expect("after an own write", at("9"), "", "10", written)
	expect("after the cache has caught up", at("11"), "", "11", written)
	deleting = true
	expect("a mark of a pod that is being deleted", at("9"), "x", "", written)
	expect("a deletion that the cache has not seen", at("9"), "", "9", written)
	answer = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("modified"))
	expect("the pod has changed", at("11"), "", "11", behind)
}

// A dry run says what it would do once, and again when the pod has changed.
func TestDryRunSaysOnce(t *testing.T) {
	w := newDryWriter()
	pod := markedPod("u", "", false)
	if _, marked := w.current(pod); marked {
		t.Fatal("marked from the start")
	}
	_, _ = w.mark(t.Context(), pod, "x")
	if text, _ := w.current(pod); text != "x" {
		t.Errorf("%q, want what was said", text)
	}
	if text, _ := w.current(markedPod("u", "forged", false)); text != "forged" {
		t.Errorf("%q, want what the changed pod bears", text)
	}
}
