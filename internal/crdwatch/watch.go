// Package crdwatch owns caches of kinds that a CustomResourceDefinition defines, and which may therefore not be served,
// be served later, go again, or be refused. It tells people once of each such change and works with what it has. It
// knows no kind by name and writes nothing.
package crdwatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// DefaultPace is how often a kind that is not served is asked for again: a small discovery request.
const DefaultPace = 15 * time.Second

// State is what is known of the kind.
type State int

// The states. Unknown is the zero value: the server has not answered yet.
const (
	Unknown  State = iota
	Absent         // the server does not serve the kind
	Refused        // it does, and rollcall may not list and watch it
	Failing        // it does, and answers with an error
	Watching       // the cache is filled and follows
)

// Options say what is watched.
type Options struct {
	Resource schema.GroupVersionResource
	// Without says what goes on without the kind, and how, for the notices.
	Without string
	// Indexers index objects of type *T.
	Indexers cache.Indexers
	// Pace is DefaultPace where zero.
	Pace time.Duration
}

// A Watch is the cache of one kind, converted to *T when an object arrives. Run it once; everything else may be called
// from any goroutine. Objects that it hands out stay its own and must not be changed.
type Watch[T any] struct {
	options   Options
	discovery discovery.DiscoveryInterface
	dynamic   dynamic.Interface
	client    dynamic.ResourceInterface
	trim      func(*T)

	mu       sync.Mutex
	state    State                              // guarded by mu, as all below
	informer cache.SharedIndexInformer          // nil while the kind is not served
	handlers map[int]cache.ResourceEventHandler // by number
	attached map[int]cache.ResourceEventHandlerRegistration
	next     int
}

// New makes a Watch. trim drops of each object, once, what nobody reads. No request is sent.
func New[T any](discovery discovery.DiscoveryInterface, client dynamic.Interface, trim func(*T), o Options) *Watch[T] {
	if o.Pace == 0 {
		o.Pace = DefaultPace
	}
	return &Watch[T]{
		options: o, discovery: discovery, dynamic: client, client: client.Resource(o.Resource), trim: trim,
		handlers: map[int]cache.ResourceEventHandler{}, attached: map[int]cache.ResourceEventHandlerRegistration{},
	}
}

// State tells what is known of the kind now.
func (w *Watch[T]) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Settled tells whether the kind's state is known and, where it can be watched, the cache was filled once.
func (w *Watch[T]) Settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state != Unknown && (w.state != Watching || w.informer.HasSynced())
}

// Handle adds a handler of *T. It hears of all that is there as added, and when the kind is no longer served of all that
// was there as deleted. The result removes it.
func (w *Watch[T]) Handle(handler cache.ResourceEventHandler) (remove func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := w.next
	w.next++
	w.handlers[number] = handler
	if err := w.attach(number); err != nil {
		delete(w.handlers, number)
		return nil, err
	}
	return func() { w.detach(number) }, nil
}

// attach needs the lock.
func (w *Watch[T]) attach(number int) error {
	if w.informer == nil {
		return nil
	}
	registration, err := w.informer.AddEventHandler(w.handlers[number])
	if err != nil {
		return fmt.Errorf("listening to %s: %w", w.options.Resource.Resource, err)
	}
	w.attached[number] = registration
	return nil
}

func (w *Watch[T]) detach(number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if registration := w.attached[number]; registration != nil && w.informer != nil {
		_ = w.informer.RemoveEventHandler(registration)
	}
	delete(w.attached, number)
	delete(w.handlers, number)
}

// List returns all objects, in no order.
func (w *Watch[T]) List() []*T { return w.read(func(i cache.Indexer) []any { return i.List() }) }

// By returns the objects that an index has under the value. An index that does not exist has none.
func (w *Watch[T]) By(index, value string) []*T {
	return w.read(func(i cache.Indexer) []any {
		objects, err := i.ByIndex(index, value)
		if err != nil {
			return nil
		}
		return objects
	})
}

func (w *Watch[T]) read(from func(cache.Indexer) []any) []*T {
	w.mu.Lock()
	informer := w.informer
	w.mu.Unlock()
	if informer == nil {
		return nil
	}
	objects := from(informer.GetIndexer())
	typed := make([]*T, 0, len(objects))
	for _, object := range objects {
		if t, ok := object.(*T); ok {
			typed = append(typed, t)
		}
	}
	return typed
}

// Run keeps the cache until the context ends, and returns when everything of it has stopped.
func (w *Watch[T]) Run(ctx context.Context) {
	tick := time.NewTicker(w.options.Pace)
	defer tick.Stop()
	for ctx.Err() == nil {
		served, err := w.served(ctx)
		switch {
		case err != nil:
			slog.Debug("asking whether a kind is served failed and is tried again", "resource", w.name(), "error", err)
		case served:
			w.follow(ctx)
			continue // ask at once: it may have been served again already
		default:
			w.become(Absent, nil)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (w *Watch[T]) name() string { return w.options.Resource.GroupResource().String() }

// served asks discovery, which every client may: without that right a list of what does not exist is refused, too.
func (w *Watch[T]) served(ctx context.Context) (bool, error) {
	list, err := discovery.ToDiscoveryInterfaceWithContext(w.discovery).
		ServerResourcesForGroupVersionWithContext(ctx, w.options.Resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, resource := range list.APIResources {
		if resource.Name == w.options.Resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

// follow keeps an informer until the kind is gone or the context ends, and then tells the handlers that its objects are.
func (w *Watch[T]) follow(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	informer := cache.NewSharedIndexInformer(w.listWatch(ctx, gone), &unstructured.Unstructured{}, 0, w.options.Indexers)
	// Both fail only for an informer that has started.
	_ = informer.SetTransform(w.convert)
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // heard has told it
	w.mu.Lock()
	w.informer = informer
	for number := range w.handlers {
		_ = w.attach(number)
	}
	w.mu.Unlock()

	informer.RunWithContext(ctx)

	w.mu.Lock()
	left := informer.GetStore().List()
	w.informer = nil
	clear(w.attached)
	var handlers []cache.ResourceEventHandler
	for _, handler := range w.handlers {
		handlers = append(handlers, handler)
	}
	w.mu.Unlock()
	for _, handler := range handlers {
		for _, object := range left {
			handler.OnDelete(object)
		}
	}
}

// listWatch hears the outcome of each request before the informer does.
func (w *Watch[T]) listWatch(ctx context.Context, gone func()) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(c context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := w.client.List(c, o)
			w.heard(ctx, err, gone)
			return list, err
		},
		WatchFuncWithContext: func(c context.Context, o metav1.ListOptions) (watch.Interface, error) {
			stream, err := w.client.Watch(c, o)
			w.heard(ctx, err, gone)
			return stream, err
		},
	}, w.dynamic)
}

// heard learns from a request's outcome. While the kind is refused or fails, what was known stays known: the informer
// tries again by itself, at most every 30 s or so.
func (w *Watch[T]) heard(ctx context.Context, err error, gone func()) {
	switch {
	case err == nil:
		w.become(Watching, nil)
	case ctx.Err() != nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsTimeout(err),
		apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsInvalid(err):
		// The everyday life of a watch, and of an API server that is busy or starts.
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		w.become(Refused, err)
	case apierrors.IsNotFound(err):
		// An API server that starts may say so for a moment; discovery decides.
		if served, asked := w.served(ctx); asked == nil && !served {
			gone()
		}
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		w.become(Failing, err)
	}
}

// become enters a state and tells people, once for each change.
func (w *Watch[T]) become(state State, err error) {
	w.mu.Lock()
	before := w.state
	w.state = state
	w.mu.Unlock()
	if before == state {
		return
	}
	log := slog.With("resource", w.name())
	switch state {
	case Absent:
		if before == Unknown {
			log.Info("not served: "+w.options.Without+"; the watch starts when its CustomResourceDefinition appears", "asked every", w.options.Pace.String())
			return
		}
		log.Warn("no longer served: " + w.options.Without + "; the watch starts again when its CustomResourceDefinition does")
	case Refused:
		log.Error("not allowed to watch: add the verbs get, list and watch on the resource to rollcall's ClusterRole; "+w.options.Without, "error", err)
	case Failing:
		log.Warn("cannot be watched and is tried again; "+w.options.Without, "error", err)
	case Watching:
		log.Info("watching")
	}
}

// convert is the informer's transform. It must leave alone what has been through it.
func (w *Watch[T]) convert(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		// An error would end the watch of all for the sake of one.
		slog.Warn("an object is not what its kind promises: only its metadata counts", "resource", w.name(), "name", u.GetName(), "error", err)
		typed = new(T)
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": u.Object["metadata"]}, typed)
	}
	w.trim(typed)
	return typed, nil
}
