package informers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// workflow is the one kind of which more than metadata is read (DESIGN.md section 3, rule 11).
var workflow = schema.GroupKind{Group: "argoproj.io", Kind: "Workflow"}

// Custom holds informers of pod owners that are no built-in kinds. A kind that the server does not serve yet gets its
// informer once it does.
type Custom struct {
	clients  Clients
	kinds    *Kinds
	wanted   map[schema.GroupKind]bool
	complain func(resource string, err error) // hears of each watch that fails

	mu      sync.Mutex
	running map[schema.GroupKind]cache.SharedIndexInformer // guarded by mu
	handler cache.ResourceEventHandler                     // guarded by mu
}

func newCustom(clients Clients, kinds *Kinds, wanted []schema.GroupKind, complain func(string, error)) *Custom {
	c := &Custom{
		clients: clients, kinds: kinds, complain: complain,
		wanted: map[schema.GroupKind]bool{}, running: map[schema.GroupKind]cache.SharedIndexInformer{},
	}
	for _, kind := range wanted {
		c.wanted[kind] = true
	}
	return c
}

// Wants tells whether the kind is one of Options.OwnerKinds.
func (c *Custom) Wants(kind schema.GroupKind) bool { return c.wanted[kind] }

// Get returns the object from the cache: nil where it holds none of that name, and ok false where the kind has no
// cache that was filled. The namespace is ignored for kinds without one.
func (c *Custom) Get(kind schema.GroupKind, namespace, name string) (object metav1.Object, ok bool) {
	c.mu.Lock()
	informer := c.running[kind]
	c.mu.Unlock()
	if informer == nil || !informer.HasSynced() {
		return nil, false
	}
	key := name
	if resource, _ := c.kinds.Lookup(kind); resource.Namespaced {
		key = namespace + "/" + name
	}
	found, exists, err := informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil, err == nil
	}
	object, ok = found.(metav1.Object)
	return object, ok
}

// Handle sets the handler of all changes of such owners; call it once.
func (c *Custom) Handle(handler cache.ResourceEventHandler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler = handler
	for kind, informer := range c.running {
		c.listen(kind, informer)
	}
}

func (c *Custom) listen(kind schema.GroupKind, informer cache.SharedIndexInformer) {
	if c.handler == nil {
		return
	}
	if _, err := informer.AddEventHandler(c.handler); err != nil {
		slog.Error("changes of an owner kind are not heard of", "kind", kind, "error", err)
	}
}

// run starts informers as their kinds appear, and waits for them to stop.
func (c *Custom) run(ctx context.Context) {
	var informers sync.WaitGroup
	defer informers.Wait()
	tick := time.NewTicker(refreshAfter)
	defer tick.Stop()
	for {
		if c.missing() {
			if err := c.kinds.Refresh(ctx, time.Now()); err != nil {
				slog.Warn("asking what kinds the server serves failed and is tried again", "error", err)
			}
			c.startServed(ctx, &informers)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *Custom) missing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.running) < len(c.wanted)
}

func (c *Custom) startServed(ctx context.Context, group *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind := range c.wanted {
		resource, serving := c.kinds.Lookup(kind)
		if c.running[kind] != nil || serving != Served {
			continue
		}
		informer := c.newInformer(kind, resource)
		failed := func(_ context.Context, _ *cache.Reflector, err error) {
			c.complain(resource.GroupResource().String(), err)
		}
		if err := errors.Join(informer.SetTransform(trimOwner), informer.SetWatchErrorHandlerWithContext(failed)); err != nil {
			slog.Error("an owner kind cannot be watched", "kind", kind, "error", err)
			continue
		}
		c.running[kind] = informer
		c.listen(kind, informer)
		group.Go(func() { informer.RunWithContext(ctx) })
	}
}

func (c *Custom) newInformer(kind schema.GroupKind, resource Resource) cache.SharedIndexInformer {
	if kind == workflow {
		return dynamicinformer.NewFilteredDynamicInformer(c.clients.Dynamic, resource.GroupVersionResource,
			metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	}
	return metadatainformer.NewFilteredMetadataInformer(c.clients.Metadata, resource.GroupVersionResource,
		metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
}

// trimOwner drops the managed fields of an owner and, of a Workflow, its status, which is by far its largest part.
func trimOwner(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		trimMeta(o)
	}
	if u, ok := object.(runtime.Unstructured); ok {
		unstructured.RemoveNestedField(u.UnstructuredContent(), "status")
	}
	return object, nil
}
