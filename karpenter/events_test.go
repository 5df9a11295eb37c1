package karpenter

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

func aHerald(client *fake.Clientset) *herald {
	clock := func() time.Time { return now }
	return newHerald(client, "test", clock, newRefusals(clock), false)
}

// flush sends what waits.
func flush(h *herald) {
	stop := make(chan struct{})
	close(stop)
	h.run(context.Background(), stop)
}

func created(client *fake.Clientset) (events []*corev1.Event) {
	for _, action := range client.Actions() {
		if create, ok := action.(clienttesting.CreateAction); ok {
			events = append(events, create.GetObject().(*corev1.Event))
		}
	}
	return events
}

func TestEventsAreToldOnce(t *testing.T) {
	client := fake.NewClientset()
	h := aHerald(client)
	pod, node := markedPod("u", "", false), aNode(t)
	f := fate.Fate{Pod: pod, Verdict: fate.Lost, Reason: fate.NoController, Message: "Nothing owns it."}
	d := Disruption{State: Committed, Cause: "spot-interruption", Since: now, Deadline: now.Add(2 * time.Minute)}
	for range 3 {
		h.willBe(f, node, markerFor(f, node.Name, d))
		h.summary(node, d, []string{"ns/p-u"})
		h.lost(pod, aMarker())
		flush(h)
	}
	events := created(client)
	if len(events) != 3 {
		t.Fatalf("%d Events, want 3: %v", len(events), events)
	}
	for _, event := range events {
		if event.Type != corev1.EventTypeWarning || event.Count != 1 || !event.FirstTimestamp.Time.Equal(now) || event.Source.Component != "rollcall" {
			t.Errorf("badly filled: %+v", event)
		}
	}
	for _, event := range events {
		if event.InvolvedObject.Kind == "Pod" && event.Reason == WillBeLost &&
			event.Message != "Will be lost with node n1 (Committed spot-interruption, until 2026-12-01T12:02:00Z). Nothing owns it." {
			t.Errorf("message %q", event.Message)
		}
	}

	// The next process gives them the same names.
	other := fake.NewClientset()
	again := aHerald(other)
	again.willBe(f, node, markerFor(f, node.Name, d))
	again.summary(node, d, []string{"ns/p-u"})
	again.lost(pod, aMarker())
	flush(again)
	for i, event := range created(other) {
		want := false
		for _, e := range events {
			want = want || e.Name == event.Name && e.Namespace == event.Namespace
		}
		if !want {
			t.Errorf("Event %d has another name: %s", i, event.Name)
		}
	}
}

func TestEventNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{
		eventName("p", "u", "n", WillBeLost, "c", "t"),
		eventName("p", "u2", "n", WillBeLost, "c", "t"),
		eventName("p", "u", "n2", WillBeLost, "c", "t"),
		eventName("p", "u", "n", PodLost, "c", "t"),
		eventName("p", "u", "n", WillBeLost, "ct", ""),
		eventName(strings.Repeat("p", 253), "u", "n"),
		eventName(strings.Repeat("p", 231)+".q", "u", "n"),
	} {
		if seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// An Event that failed is tried again with the next look at its node; one that was refused or exists is not.
func TestEventFailures(t *testing.T) {
	resource := schema.GroupResource{Resource: "events"}
	for name, tc := range map[string]struct {
		err   error
		tries int
	}{
		"exists":    {apierrors.NewAlreadyExists(resource, "e"), 1},
		"forbidden": {apierrors.NewForbidden(resource, "e", nil), 1},
		"not found": {apierrors.NewNotFound(resource, "e"), 1},
		"trouble":   {apierrors.NewInternalError(context.DeadlineExceeded), 2},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			h := aHerald(client)
			for range 2 {
				h.lost(markedPod("u", "", false), aMarker())
				flush(h)
			}
			if got := len(created(client)); got != tc.tries {
				t.Errorf("%d tries, want %d", got, tc.tries)
			}
		})
	}
}

// What does not fit the backlog is dropped, counted, and told again later. Nobody waits.
func TestEventBacklog(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	h := aHerald(client)
	var pod *corev1.Pod
	for i := range eventBacklog + 5 {
		pod = markedPod(strconv.Itoa(i), "", false)
		h.lost(pod, aMarker())
	}
	if got := h.dropped.Load(); got != 5 {
		t.Errorf("%d dropped, want 5", got)
	}
	flush(h)
	h.lost(pod, aMarker())
	flush(h)
	if got := len(created(client)); got != eventBacklog+1 {
		t.Errorf("%d sent, want %d", got, eventBacklog+1)
	}
}

func TestShorten(t *testing.T) {
	for _, text := range []string{"", "abc", strings.Repeat("a", 40), strings.Repeat("é", 20), "aaaaaa€€€€€€"} {
		got := shorten(text, 12)
		if len(got) > 12 || !utf8.ValidString(got) || len(text) <= 12 && got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestRefusalsAreReportedOncePerPeriod(t *testing.T) {
	at := now
	r := newRefusals(func() time.Time { return at })
	told := func() bool {
		before := r.last["patch pods/status"]
		r.report("patch", "pods/status", "ns", nil)
		return r.last["patch pods/status"] != before
	}
	if !told() || told() {
		t.Error("want the first and not the second")
	}
	at = at.Add(refusalPeriod)
	if !told() {
		t.Error("want one in the next period")
	}
}
