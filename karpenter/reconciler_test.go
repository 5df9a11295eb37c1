package karpenter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/losses"
)

// A ledgerSpy lists what the record is told.
type ledgerSpy struct {
	noRecords
	told []string
}

func (s *ledgerSpy) Marked(pod *corev1.Pod, _ losses.Risk) {
	s.told = append(s.told, "marked "+pod.Name)
}
func (s *ledgerSpy) Cleared(pod *corev1.Pod) { s.told = append(s.told, "cleared "+pod.Name) }
func (s *ledgerSpy) Ended(pod *corev1.Pod, _ losses.Risk, _ losses.Ending) {
	s.told = append(s.told, "ended "+pod.Name)
}

// A bench has a controller over the caches of a made-up server. Nobody works on its queue.
type bench struct {
	*Controller
	t      *testing.T
	server *typedfake.Clientset
	ledger *ledgerSpy
}

func newBench(t *testing.T, placement bool, objects ...runtime.Object) *bench {
	t.Helper()
	typed := typedfake.NewClientset(objects...)
	clients := informers.Clients{Typed: typed, Dynamic: fake.NewSimpleDynamicClient(scheme.Scheme)} // all is gone, read live
	set, err := informers.New(clients, informers.Options{Placement: placement})
	if err != nil {
		t.Fatal(err)
	}
	keys := queue.New(queue.Options{})
	c, err := New(clients, set, Options{
		Disruption: DefaultConfig(), Mark: map[fate.Verdict]bool{fate.Lost: true, fate.Stranded: placement},
		Queue: keys, Clock: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Controller: c, t: t, server: typed, ledger: &ledgerSpy{}}
	c.recorder = b.ledger
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		set.Run(ctx)
	}()
	t.Cleanup(func() {
		stop := make(chan struct{})
		close(stop)
		if err := keys.Run(context.Background(), stop, 0); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
	})
	if !cache.WaitForCacheSync(t.Context().Done(), set.Synced) {
		t.Fatal("the caches did not sync")
	}
	return b
}

// patches are what pods were patched with.
func (b *bench) patches() (patches []string) {
	for _, action := range b.server.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			patches = append(patches, patch.GetName()+" "+string(patch.GetPatch()))
		}
	}
	return patches
}

// waiting are the nodes whose keys wait for their time, and queued those whose turn it is.
func (b *bench) keys() (waiting, queued []string) {
	for _, view := range b.queue.Changes(0).Views {
		if view.State == queue.Queued {
			queued = append(queued, view.Key.Name)
		} else if !view.Until.IsZero() {
			waiting = append(waiting, view.Key.Name)
		}
	}
	return waiting, queued
}

func interrupted(name string) *corev1.Node {
	node := machine(name, "")
	node.Spec.Taints = []corev1.Taint{{Key: "spot-interruption", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: now}}}
	return node
}

func podOn(node string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

// The driver's object is gone before the garbage collector comes to its executor, on a node that stays: the executor keeps
// its marker, is not withdrawn, and its deletion is a loss. An executor of a driver that lives is none.
func TestExecutorOfGoneDriverKeepsItsMarker(t *testing.T) {
	marker := aMarker()
	marker.Reason, marker.Node = fate.OwnerPodLost, "n1"
	executor := podOn("n2", childOf("executor", marker.String(), "driver"))
	other := podOn("n2", childOf("other", marker.String(), "alive"))
	alive := podOn("n2", markedPod("alive", "", false))
	alive.Name = "alive"
	for name, first := range map[string]*corev1.Node{"its node goes": interrupted("n1"), "its node stays": machine("n1", "")} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false, first, machine("n2", ""), executor.DeepCopy(), other.DeepCopy(), alive.DeepCopy())
			if _, err := b.reconcileNode(t.Context(), "n2"); err != nil {
				t.Fatal(err)
			}
			if patches := b.patches(); len(patches) != 1 || !strings.HasPrefix(patches[0], "p-other ") {
				t.Errorf("patched %q, want only the executor of the driver that lives", patches)
			}
			b.podDeleted(executor)
			if !slices.Equal(b.ledger.told, []string{"cleared p-other", "ended p-executor"}) {
				t.Errorf("the record was told %q", b.ledger.told)
			}
		})
	}
}

// A pod that cannot be marked has its Event and its record all the same, until it is lost or at risk no more; of another
// pod of its name nothing is told.
func TestUnmarkedAreTold(t *testing.T) {
	pods, kind := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}
	for name, tc := range map[string]struct {
		err    error
		told   bool
		failed bool
	}{
		"forbidden":   {apierrors.NewForbidden(pods, "p", nil), true, false},
		"refused":     {apierrors.NewInvalid(kind, "p", field.ErrorList{field.Forbidden(field.NewPath("metadata"), "policy")}), true, true},
		"trouble":     {errors.New("no route to host"), true, true},
		"gone":        {apierrors.NewNotFound(pods, "p"), false, false},
		"another UID": {apierrors.NewInvalid(kind, "p", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "u", "")}), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			bare := podOn("n1", markedPod("bare", "", false))
			b := newBench(t, false, interrupted("n1"), bare)
			b.server.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			for range 2 {
				if _, err := b.reconcileNode(t.Context(), "n1"); (err != nil) != tc.failed {
					t.Errorf("error %v", err)
				}
			}
			flush(b.herald)
			events := slices.DeleteFunc(created(b.server), func(e *corev1.Event) bool { return e.InvolvedObject.Kind != "Pod" })
			if len(events) > 1 || (len(events) == 1) != tc.told || tc.told != slices.Contains(b.ledger.told, "marked p-bare") {
				t.Errorf("%d Events, the record was told %q", len(events), b.ledger.told)
			}
			b.ledger.told = nil
			b.podDeleted(bare)
			if tc.told != slices.Equal(b.ledger.told, []string{"ended p-bare"}) {
				t.Errorf("at its end the record was told %q", b.ledger.told)
			}
			b.ledger.told = nil
			b.withdrawUnmarked([]*corev1.Pod{bare}, marking{})
			b.withdrawUnmarked([]*corev1.Pod{bare}, marking{})
			if tc.told != slices.Equal(b.ledger.told, []string{"cleared p-bare"}) {
				t.Errorf("once it is at risk no more the record was told %q", b.ledger.told)
			}
		})
	}
}

// A removal that comes too late is made again soon, and is no error.
func TestLateRemovalComesBack(t *testing.T) {
	b := newBench(t, false, machine("n1", ""), podOn("n1", markedPod("bare", aMarker().String(), false)))
	b.server.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p-bare", errors.New("modified"))
	})
	again, err := b.reconcileNode(t.Context(), "n1")
	if again != judgeAgainAfter || err != nil || len(b.ledger.told) > 0 {
		t.Errorf("again in %v, %v, the record was told %q", again, err, b.ledger.told)
	}
}

// With placement, what changes the places that there are has the nodes that go looked at again, once in a while; heartbeats
// do not, and without placement nothing does.
func TestPlacesAreAskedForAgain(t *testing.T) {
	changed := func(change func(*corev1.Node)) *corev1.Node {
		node := machine("n2", "")
		change(node)
		return node
	}
	before := machine("n2", "")
	for name, tc := range map[string]struct {
		do   func(b *bench)
		asks bool
	}{
		"a node joins":   {func(b *bench) { b.nodeAdded(before) }, true},
		"a node is gone": {func(b *bench) { b.nodeDeleted(before) }, true},
		"it is Ready":    {func(b *bench) { b.nodeUpdated(before, changed(makeReady)) }, true},
		"it is cordoned": {func(b *bench) { b.nodeUpdated(before, changed(func(n *corev1.Node) { n.Spec.Unschedulable = true })) }, true},
		"it is tainted": {func(b *bench) {
			b.nodeUpdated(before, changed(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }))
		}, true},
		"it is labelled": {func(b *bench) {
			b.nodeUpdated(before, changed(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }))
		}, true},
		"it has more room": {func(b *bench) {
			b.nodeUpdated(before, changed(func(n *corev1.Node) { n.Status.Allocatable = room("4") }))
		}, true},
		"it was made again": {func(b *bench) { b.nodeUpdated(before, changed(func(n *corev1.Node) { n.UID = "other" })) }, true},
		"a heartbeat":       {func(b *bench) { b.nodeUpdated(before, changed(func(n *corev1.Node) { n.ResourceVersion = "9" })) }, false},
		"the room's notation": {func(b *bench) {
			b.nodeUpdated(changed(func(n *corev1.Node) { n.Status.Allocatable = room("4000m") }), changed(func(n *corev1.Node) { n.Status.Allocatable = room("4") }))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, placement := range []bool{true, false} {
				b := newBench(t, placement, interrupted("n1"), machine("n2", ""))
				for range 3 {
					tc.do(b)
				}
				waiting, queued := b.keys()
				if asks := slices.Equal(waiting, []string{"n1"}); asks != (tc.asks && placement) || slices.Contains(queued, "n1") {
					t.Errorf("placement %v: %q wait, %q are queued", placement, waiting, queued)
				}
			}
		})
	}
}

func makeReady(node *corev1.Node) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
}

func room(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

// What no key follows from (volumes, namespaces, the room that other pods leave) is asked for again with time, without a
// write, where a pod of a node that goes needs a place.
func TestPlacesAreAskedForWithTime(t *testing.T) {
	owned := func() *corev1.Pod {
		pod := podOn("n1", markedPod("web", "", false))
		pod.OwnerReferences = []metav1.OwnerReference{owner("set")}
		return pod
	}
	for name, tc := range map[string]struct {
		placement bool
		node      *corev1.Node
		pod       *corev1.Pod
		want      time.Duration
	}{
		"stranded":            {true, interrupted("n1"), owned(), askAgainAfter},
		"bare":                {true, interrupted("n1"), podOn("n1", markedPod("web", "", false)), 0},
		"its node stays":      {true, machine("n1", ""), owned(), 0},
		"placement is not on": {false, interrupted("n1"), owned(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			tc.pod.ResourceVersion = "5"
			b := newBench(t, tc.placement, tc.node, tc.pod, aReplicaSet("set"))
			b.server.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10"}}, nil // the cache does not see it
			})
			if _, err := b.reconcileNode(t.Context(), "n1"); err != nil {
				t.Fatal(err)
			}
			writes := len(b.patches())
			again, err := b.reconcileNode(t.Context(), "n1")
			if again != tc.want || err != nil || len(b.patches()) != writes {
				t.Errorf("again in %v, %v, want %v; writes %q", again, err, tc.want, b.patches())
			}
		})
	}
}

func TestSooner(t *testing.T) {
	for _, tc := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := sooner(tc.a, tc.b); got != tc.want {
			t.Errorf("of %d and %d %d", tc.a, tc.b, got)
		}
	}
}
