package crdwatch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

var gadgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}

// A bench is a server that serves gadgets or not, and a Watch of them. Gadgets are read as ConfigMaps.
type bench struct {
	t       *testing.T
	gadgets *Watch[corev1.ConfigMap]
	dynamic *fake.FakeDynamicClient

	mu     sync.Mutex
	served bool            // guarded by mu, as all below
	answer error           // of every list and watch
	there  map[string]bool // what the handler heard of
	stream watch.Interface // of the latest watch
	log    bytes.Buffer
}

func newBench(t *testing.T) *bench {
	typed := typedfake.NewClientset()
	b := &bench{t: t, there: map[string]bool{}}
	b.dynamic = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gadgets: "GadgetList"})
	typed.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		typed.Resources = nil
		if b.served {
			typed.Resources = []*metav1.APIResourceList{{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "gadgets"}}}}
		}
		return false, nil, nil
	})
	b.dynamic.PrependReactor("list", "gadgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.answer != nil, nil, b.answer
	})
	b.dynamic.PrependWatchReactor("gadgets", func(clienttesting.Action) (bool, watch.Interface, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.answer != nil {
			return true, nil, b.answer
		}
		stream, err := b.dynamic.Tracker().Watch(gadgets, "")
		b.stream = stream
		return true, stream, err
	})
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	b.gadgets = New(typed.Discovery(), b.dynamic, func(c *corev1.ConfigMap) { c.Labels = nil }, Options{
		Resource: gadgets, Without: "nobody misses them", Pace: 5 * time.Millisecond,
		Indexers: cache.Indexers{"size": func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Data["size"]}, nil }},
	})
	_, err := b.gadgets.Handle(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.hear(o, true) },
		DeleteFunc: func(o any) { b.hear(o, false) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.gadgets.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return b
}

func (b *bench) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(line)
}

func (b *bench) hear(object any, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.there[object.(*corev1.ConfigMap).Name] = there
}

func (b *bench) serve(served bool, answer error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.served, b.answer = served, answer
}

// breakWatch ends the watch, as an API server does every few minutes, which answers so from then on. It waits for the watch
// first: one that is not yet asked for would get the answer instead.
func (b *bench) breakWatch(served bool, answer error) {
	b.t.Helper()
	b.eventually("a watch", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.stream == nil {
			return false
		}
		b.served, b.answer = served, answer
		b.stream.Stop()
		b.stream = nil
		return true
	})
}

func (b *bench) heard(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.there[name]
}

func (b *bench) make(name, size string) {
	b.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"a": "b"}}, "data": map[string]any{"size": size},
	}}
	if _, err := b.dynamic.Resource(gadgets).Create(b.t.Context(), u, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) eventually(what string, condition func() bool) {
	b.t.Helper()
	err := wait.PollUntilContextTimeout(b.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		b.t.Fatalf("%s: %v; state %v", what, err, b.gadgets.State())
	}
}

func (b *bench) is(state State) {
	b.t.Helper()
	b.eventually("a state", func() bool { return b.gadgets.State() == state && b.gadgets.Settled() })
}

// lines tells how often the log has the text.
func (b *bench) lines(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.log.String(), text)
}

// A kind that is not there, comes, goes and comes again, with what it held.
func TestComesAndGoes(t *testing.T) {
	b := newBench(t)
	b.is(Absent)
	if len(b.gadgets.List()) != 0 || len(b.gadgets.By("size", "big")) != 0 {
		t.Error("has objects of a kind that is not served")
	}
	b.make("one", "big")
	b.serve(true, nil)
	b.is(Watching)
	b.eventually("an added object", func() bool { return b.heard("one") })
	if got := b.gadgets.By("size", "big"); len(got) != 1 || got[0].Name != "one" || got[0].Labels != nil {
		t.Errorf("index has %v", got)
	}

	b.breakWatch(false, apierrors.NewNotFound(gadgets.GroupResource(), ""))
	b.is(Absent)
	b.eventually("what was there is gone", func() bool { return !b.heard("one") && len(b.gadgets.List()) == 0 })
	b.serve(true, nil)
	b.is(Watching)
	b.eventually("it is back", func() bool { return b.heard("one") })
	for text, want := range map[string]int{"not served": 1, "no longer served": 1, "msg=watching": 2} {
		if got := b.lines(text); got != want {
			t.Errorf("%d lines %q, want %d", got, text, want)
		}
	}
}

// A refusal is told once however often it is repeated, and ends when the right is there.
func TestRefused(t *testing.T) {
	b := newBench(t)
	b.serve(true, apierrors.NewForbidden(gadgets.GroupResource(), "", errors.New("no right")))
	b.is(Refused)
	b.make("one", "big")
	b.serve(true, nil)
	b.is(Watching)
	b.eventually("an added object", func() bool { return b.heard("one") })
	if got := b.lines("not allowed to watch"); got != 1 {
		t.Errorf("%d lines about the refusal, want 1", got)
	}
	if got := b.lines("get, list and watch"); got != 1 {
		t.Errorf("the way out is named %d times, want once", got)
	}
}

func TestFailing(t *testing.T) {
	b := newBench(t)
	b.serve(true, apierrors.NewInternalError(errors.New("conversion webhook is down")))
	b.is(Failing)
	b.serve(true, nil)
	b.is(Watching)
}

// 404 while discovery still has the kind is an API server that starts: nothing is forgotten.
func TestNotFoundWhileServed(t *testing.T) {
	b := newBench(t)
	b.make("one", "big")
	b.serve(true, nil)
	b.eventually("an added object", func() bool { return b.heard("one") })
	b.breakWatch(true, apierrors.NewNotFound(gadgets.GroupResource(), ""))
	b.eventually("the list is tried again", func() bool {
		lists := 0
		for _, action := range b.dynamic.Actions() {
			if action.GetVerb() == "list" {
				lists++
			}
		}
		return lists > 1
	})
	if !b.heard("one") || len(b.gadgets.List()) != 1 {
		t.Error("forgot what it knew")
	}
}

// An object that does not fit the type does not take the others with it.
func TestMisfit(t *testing.T) {
	b := newBench(t)
	b.make("one", "big")
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "misfit"}, "data": "none",
	}}
	if _, err := b.dynamic.Resource(gadgets).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.serve(true, nil)
	b.eventually("both", func() bool { return b.heard("one") && b.heard("misfit") })
}
