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
	for text, want := range map[string]string{
		"x": `{"metadata":{"annotations":{"rollcall.dev/at-risk":"x"},"uid":"u"}}`,
		"":  `{"metadata":{"annotations":{"rollcall.dev/at-risk":null},"uid":"u"}}`,
	} {
		if got := string(markPatch(markedPod("u", "", false), text)); got != want || !json.Valid([]byte(got)) {
			t.Errorf("got %s, want %s", got, want)
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
