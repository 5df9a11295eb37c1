package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/kubelet"
)

var nodes = schema.GroupResource{Resource: "nodes"}

// fakeAPI is one Node, as an API server keeps it.
type fakeAPI struct {
	node    *corev1.Node
	version int
	applied []string // managers
	events  []*corev1.Event
	refuse  error
	muted   error // what an Event is answered with
}

func newFakeAPI() *fakeAPI {
	f := &fakeAPI{node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "100", Annotations: map[string]string{}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: readiness.TaintKey, Value: "pending", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b1"}},
	}, version: 100}
	return f
}

// touch is a write by somebody else.
func (f *fakeAPI) touch(change func(*corev1.Node)) {
	f.version++
	f.node = f.node.DeepCopy()
	f.node.ResourceVersion = string(rune('0'+f.version/100)) + string(rune('0'+f.version/10%10)) + string(rune('0'+f.version%10))
	change(f.node)
}

func (f *fakeAPI) WatchNode(context.Context, func(*corev1.Node), func(error))  {}
func (f *fakeAPI) WatchPods(context.Context, func([]*corev1.Pod), func(error)) {}
func (f *fakeAPI) GetNode(context.Context) (*corev1.Node, error)               { return f.node, nil }

func (f *fakeAPI) ApplyStatus(_ context.Context, manager string, body []byte) (*corev1.Node, error) {
	var patch readiness.Apply
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	version := patch.Metadata.ResourceVersion
	switch {
	case f.refuse != nil:
		return nil, f.refuse
	case patch.Metadata.UID != f.node.UID, version != "" && version != f.node.ResourceVersion:
		return nil, apierrors.NewConflict(nodes, "n1", nil)
	}
	f.applied = append(f.applied, manager)
	f.touch(func(n *corev1.Node) {
		for key, value := range patch.Metadata.Annotations {
			n.Annotations[key] = value
			f.owns(manager)
		}
		if patch.Status != nil {
			n.Status.Conditions = patch.Status.Conditions
		}
	})
	return f.node, nil
}

// owns makes manager the owner of the annotation.
func (f *fakeAPI) owns(manager string) {
	f.node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(
		`{"f:metadata":{"f:annotations":{"f:` + readiness.StaticPodsAnnotation + `":{}}}}`)}}
}

func (f *fakeAPI) CreateEvent(_ context.Context, event *corev1.Event) error {
	if f.muted == nil {
		f.events = append(f.events, event)
	}
	return f.muted
}

// A bench is an Agent whose loop the test turns by hand.
type bench struct {
	*Agent
	t   *testing.T
	api *fakeAPI
	now time.Time
	log bytes.Buffer
}

func newBench(t *testing.T, standalone bool) *bench {
	b := &bench{t: t, api: newFakeAPI(), now: time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)}
	b.Agent = &Agent{
		Config: Config{Node: "n1", BootID: "b1", Identity: "me", Standalone: standalone, Taint: readiness.DefaultTaint, Condition: readiness.DefaultCondition, Settle: time.Second, HeldWarning: time.Minute},
		API:    b.api, Log: slog.New(slog.NewTextHandler(&b.log, nil)), Now: func() time.Time { return b.now },
	}
	b.said, b.told, b.started, b.choice = map[string]string{}, map[string]telling{}, b.now.Add(-time.Hour), kubelet.NewChoice("socket")
	b.see(b.api.node)
	b.listed = true
	return b
}

func (b *bench) know(names ...string) {
	answer := kubelet.Answer{State: kubelet.Known}
	for _, name := range names {
		answer.Pods = append(answer.Pods, readiness.StaticPod{Namespace: "edge", Name: name, Hash: "h"})
	}
	b.hear("socket", answer)
}

// turn is one step, after d and after the watch has caught up.
func (b *bench) turn(d time.Duration) time.Duration {
	b.now = b.now.Add(d)
	b.see(b.api.node)
	return b.step(b.t.Context())
}

func (b *bench) writes(want int) {
	b.t.Helper()
	if len(b.api.applied) != want {
		b.t.Errorf("wrote %v, want %d writes", b.api.applied, want)
	}
}

func (b *bench) condition(status corev1.ConditionStatus, reason string) {
	b.t.Helper()
	c := readiness.ConditionOf(b.api.node, readiness.DefaultCondition)
	if c == nil || c.Status != status || c.Reason != reason {
		b.t.Errorf("the condition is %+v, want %s %s", c, status, reason)
	}
}

// Nothing known is not published, what is known once, what changed again; heartbeats of others cost no write.
func TestPublish(t *testing.T) {
	b := newBench(t, false)
	b.turn(0)
	b.writes(0)
	b.know("a")
	b.turn(0)
	b.writes(1)
	for range 5 {
		b.api.touch(func(*corev1.Node) {})
		b.turn(10 * time.Second)
	}
	b.writes(1)
	b.know("a", "b")
	b.turn(0)
	b.writes(2)
	if set := readiness.Published(b.api.node); len(set.Pods) != 2 || b.api.applied[1] != Manager {
		t.Errorf("published %+v by %v", set, b.api.applied)
	}
	// The kubelet goes away: what is published stays.
	b.hear("socket", kubelet.Answer{State: kubelet.Waiting, Why: "gone"})
	b.turn(time.Hour)
	b.writes(2)
	// A Node of the same name: everything anew, and nobody is accused.
	b.api.touch(func(n *corev1.Node) { n.UID, n.Annotations = "u2", map[string]string{} })
	b.turn(0)
	b.writes(3)
	if len(b.api.events) != 0 {
		t.Errorf("Events: %+v", b.api.events)
	}
}

// A forged annotation is written over at once, the next forgery after a pause; who did it is said.
func TestForged(t *testing.T) {
	b := newBench(t, false)
	b.know("a")
	b.turn(0)
	forge := func() {
		b.api.touch(func(n *corev1.Node) { n.Annotations[readiness.StaticPodsAnnotation] = "{}" })
		b.api.owns("kubectl-annotate")
	}
	forge()
	b.turn(0)
	b.writes(2)
	forge()
	if wait := b.turn(time.Second); wait != quarrel-time.Second {
		t.Errorf("the next look is in %s", wait)
	}
	b.writes(2)
	b.turn(quarrel)
	b.writes(3)
	if len(b.api.events) != 1 || !strings.Contains(b.api.events[0].Message, "kubectl-annotate") {
		t.Errorf("Events: %+v", b.api.events)
	}
	// Another agent with another view.
	other := readiness.Expected{Source: "directory", BootID: "b1", Observed: b.now}
	value, err := other.Encode("other")
	if err != nil {
		t.Fatal(err)
	}
	b.api.touch(func(n *corev1.Node) { n.Annotations[readiness.StaticPodsAnnotation] = value })
	b.turn(quarrel)
	b.writes(4)
	if !strings.Contains(b.log.String(), "another rollcall-agent (other)") {
		t.Errorf("the log: %s", b.log.String())
	}
	// Another one that calls itself the same.
	if value, err = other.Encode(b.Identity); err != nil {
		t.Fatal(err)
	}
	b.api.touch(func(n *corev1.Node) { n.Annotations[readiness.StaticPodsAnnotation] = value })
	b.turn(quarrel)
	if !strings.Contains(b.log.String(), "another rollcall-agent (me, as this one is called)") {
		t.Errorf("the log: %s", b.log.String())
	}
	// The first forger is back when nobody finds the first Event any more.
	forge()
	b.turn(eventLife)
	if last := b.api.events[len(b.api.events)-1]; len(b.api.events) != 4 || !strings.Contains(last.Message, "kubectl-annotate") {
		t.Errorf("Events: %+v", b.api.events)
	}
}

// Requests that fail are repeated with growing pauses and said once; success ends that.
func TestFailure(t *testing.T) {
	b := newBench(t, false)
	b.know("a")
	b.api.refuse = apierrors.NewForbidden(nodes, "n1", nil)
	var pauses []time.Duration
	var wait time.Duration
	for range 12 {
		wait = b.turn(wait)
		pauses = append(pauses, wait)
	}
	if pauses[0] != minBackoff || pauses[1] != 2*minBackoff || pauses[11] != maxBackoff {
		t.Errorf("pauses: %v", pauses)
	}
	if n := strings.Count(b.log.String(), "the agent needs to"); n != 1 {
		t.Errorf("said %d times: %s", n, b.log.String())
	}
	b.api.refuse = nil
	b.turn(wait)
	b.writes(1)
}

// Standalone: held until all mirrors have stood for the time; the annotation and the condition have managers of their own;
// a write against an older version of the Node is judged again.
func TestRelease(t *testing.T) {
	b := newBench(t, true)
	b.know("a")
	b.turn(0)
	b.condition(corev1.ConditionFalse, readiness.MirrorMissing)
	b.writes(2)
	b.pods = []*corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "edge", Name: "a", UID: "m", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "h"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}}
	if wait := b.turn(10 * time.Second); wait != time.Second {
		t.Errorf("settles in %s", wait)
	}
	b.condition(corev1.ConditionFalse, readiness.MirrorMissing)
	// Somebody writes to the Node, and the watch is behind.
	b.api.touch(func(*corev1.Node) {})
	b.now = b.now.Add(time.Second)
	if wait := b.step(t.Context()); wait != 0 {
		t.Errorf("after a conflict the next look is in %s", wait)
	}
	b.step(t.Context())
	b.condition(corev1.ConditionTrue, readiness.AllMirrored)
	if got := strings.Join(b.api.applied, " "); got != Manager+" "+domain.FieldManager+" "+domain.FieldManager {
		t.Errorf("managers: %s", got)
	}
	// A reboot that the Node shows and this machine does not: nothing is known.
	b.api.touch(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" })
	b.turn(time.Minute)
	b.condition(corev1.ConditionUnknown, readiness.KubeletNotReady)
}

// A node that is held for long is told about once.
func TestHeld(t *testing.T) {
	b := newBench(t, true)
	b.know("a")
	if wait := b.turn(0); wait != time.Minute {
		t.Errorf("looks again in %s", wait)
	}
	b.turn(time.Minute)
	b.turn(time.Hour)
	if len(b.api.events) != 1 || !strings.Contains(b.api.events[0].Message, "edge/a") {
		t.Errorf("Events: %+v", b.api.events)
	}
}

// An Event that the API server does not take is tried again; a node without the taint is held by nobody.
func TestHeldIsTold(t *testing.T) {
	b := newBench(t, true)
	b.know("a")
	b.turn(0)
	b.api.muted = apierrors.NewServiceUnavailable("an outage")
	if wait := b.turn(time.Minute); wait > maxBackoff {
		t.Errorf("tries again in %s", wait)
	}
	b.api.muted = nil
	b.turn(maxBackoff)
	if len(b.api.events) != 1 || b.api.events[0].Reason != readiness.NotMirrored {
		t.Errorf("Events: %+v", b.api.events)
	}
	free := newBench(t, true)
	free.api.touch(func(n *corev1.Node) { n.Spec.Taints = nil })
	free.know("a")
	free.turn(0)
	free.turn(time.Hour)
	if len(free.api.events) != 1 || free.api.events[0].Reason != NoReadinessTaint {
		t.Errorf("Events: %+v", free.api.events)
	}
}

// A node that registered without the taint is told about once, in the log and an Event; not after it was judged, when the
// taint is gone by right, and not by an agent that judges nothing.
func TestNoTaint(t *testing.T) {
	for _, standalone := range []bool{true, false} {
		b := newBench(t, standalone)
		b.api.touch(func(n *corev1.Node) { n.Spec.Taints = nil })
		b.know()
		b.turn(0)
		b.turn(time.Minute)
		b.Agent.said, b.Agent.told = map[string]string{}, map[string]telling{} // an agent that starts anew
		b.turn(time.Minute)
		want := 0
		if standalone {
			want = 1
		}
		if len(b.api.events) != want || strings.Count(b.log.String(), NoReadinessTaint) != want {
			t.Fatalf("standalone %t: Events %+v, log %s", standalone, b.api.events, b.log.String())
		}
		if standalone && (!strings.Contains(b.api.events[0].Message, readiness.DefaultTaint.String()) || b.api.events[0].Reason != NoReadinessTaint) {
			t.Errorf("the Event is %+v", b.api.events[0])
		}
	}
}
