package informers

import (
	"context"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// refreshAfter bounds how often discovery is asked again because of a kind that it did not know: one request a minute
// costs nothing, and a CustomResourceDefinition that comes back is noticed about as soon as its pods are.
const refreshAfter = time.Minute

// Resource is how a kind is asked for.
type Resource struct {
	schema.GroupVersionResource
	Namespaced bool
}

// Serving is what is known of a kind.
type Serving int

// The answers. Undiscovered is the zero value: what discovery failed to tell decides nothing.
const (
	Undiscovered Serving = iota
	Served
	NotServed
)

// Kinds remembers what kinds the server serves. It sends requests only in Refresh.
type Kinds struct {
	client discovery.DiscoveryInterface

	mu        sync.Mutex
	refreshed time.Time                     // guarded by mu, as all below
	resources map[schema.GroupKind]Resource // of the preferred version
	failed    map[string]bool               // groups that did not answer
	known     bool                          // discovery has answered once
}

func newKinds(client discovery.DiscoveryInterface) *Kinds { return &Kinds{client: client} }

// Lookup tells how the kind is served, from memory.
func (k *Kinds) Lookup(kind schema.GroupKind) (Resource, Serving) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if resource, served := k.resources[kind]; served {
		return resource, Served
	}
	if !k.known || k.failed[kind.Group] {
		return Resource{}, Undiscovered
	}
	return Resource{}, NotServed
}

// Stale tells whether Refresh would ask the server.
func (k *Kinds) Stale(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return now.Sub(k.refreshed) >= refreshAfter
}

// Refresh asks the server again, at most once a minute; sooner it does nothing. A failure keeps what was known.
func (k *Kinds) Refresh(_ context.Context, now time.Time) error {
	k.mu.Lock()
	if now.Sub(k.refreshed) < refreshAfter {
		k.mu.Unlock()
		return nil
	}
	k.refreshed = now
	k.mu.Unlock()

	// Outside the lock: a slow aggregated API must not hold up the readers.
	lists, err := k.client.ServerPreferredResources()
	failed := map[string]bool{}
	if groups, partly := discovery.GroupDiscoveryFailedErrorGroups(err); partly {
		for version := range groups {
			failed[version.Group] = true
		}
	} else if err != nil {
		return err
	}
	resources := map[schema.GroupKind]Resource{}
	for _, list := range lists {
		addKinds(resources, list)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for kind, resource := range k.resources {
		if _, again := resources[kind]; !again && failed[kind.Group] {
			resources[kind] = resource
		}
	}
	k.resources, k.failed, k.known = resources, failed, true
	return nil
}

func addKinds(resources map[schema.GroupKind]Resource, list *metav1.APIResourceList) {
	version, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return
	}
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue // a subresource
		}
		resources[version.WithKind(r.Kind).GroupKind()] = Resource{version.WithResource(r.Name), r.Namespaced}
	}
}
