package karpenter

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rollcall-dev/rollcall/internal/events"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

func aHerald(client *fake.Clientset) herald {
	return herald{events.New(events.Options{Client: client, Instance: "test", Clock: func() time.Time { return now }})}
}

// flush sends what waits.
func flush(h herald) {
	stop := make(chan struct{})
	close(stop)
	h.Run(context.Background(), stop)
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
	told := created(client)
	if len(told) != 3 {
		t.Fatalf("%d Events, want 3: %v", len(told), told)
	}
	for _, event := range told {
		if event.Type != corev1.EventTypeWarning || event.Count != 1 || !event.FirstTimestamp.Time.Equal(now) || event.Source.Component != "rollcall" {
			t.Errorf("badly filled: %+v", event)
		}
	}
	for _, event := range told {
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
		for _, e := range told {
			want = want || e.Name == event.Name && e.Namespace == event.Namespace
		}
		if !want {
			t.Errorf("Event %d has another name: %s", i, event.Name)
		}
	}
}
