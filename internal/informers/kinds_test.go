package informers

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// preferred is a server's discovery that answers as it is told.
type preferred struct {
	discovery.DiscoveryInterface
	lists []*metav1.APIResourceList
	err   error
	asked int
}

func (p *preferred) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	p.asked++
	return p.lists, p.err
}

func TestKinds(t *testing.T) {
	workflows := []*metav1.APIResourceList{{GroupVersion: "argoproj.io/v1alpha1", APIResources: []metav1.APIResource{
		{Name: "workflows", Kind: "Workflow", Namespaced: true}, {Name: "workflows/status", Kind: "Workflow"}}}}
	ill := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("503")}}
	server := &preferred{err: errors.New("no route to host")}
	kinds := newKinds(server)
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	refresh := func() error {
		at = at.Add(refreshAfter)
		return kinds.Refresh(t.Context(), at)
	}
	expect := func(group, kind string, want Serving) Resource {
		t.Helper()
		resource, got := kinds.Lookup(schema.GroupKind{Group: group, Kind: kind})
		if got != want {
			t.Errorf("%s/%s: %v, want %v", group, kind, got, want)
		}
		return resource
	}

	expect("argoproj.io", "Workflow", Undiscovered)
	if refresh() == nil {
		t.Error("a failure is no error")
	}
	expect("argoproj.io", "Workflow", Undiscovered)

	// A group that does not answer decides nothing about its kinds.
	server.lists, server.err = workflows, ill
	if err := refresh(); err != nil {
		t.Error(err)
	}
	if resource := expect("argoproj.io", "Workflow", Served); resource.Resource != "workflows" || !resource.Namespaced {
		t.Errorf("read as %+v", resource)
	}
	expect("metrics.k8s.io", "PodMetrics", Undiscovered)
	expect("argoproj.io", "Rollout", NotServed)

	// Asked again too soon it asks nobody.
	server.lists, server.err = nil, nil
	asked := server.asked
	if err := kinds.Refresh(t.Context(), at.Add(refreshAfter-1)); err != nil || server.asked != asked || kinds.Stale(at) {
		t.Errorf("asked %d times more (%v)", server.asked-asked, err)
	}
	expect("argoproj.io", "Workflow", Served)

	// A kind goes with its CustomResourceDefinition, but not because its group is silent for a while.
	server.err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "argoproj.io", Version: "v1alpha1"}: errors.New("503")}}
	if err := refresh(); err != nil {
		t.Error(err)
	}
	expect("argoproj.io", "Workflow", Served)
	server.err = nil
	if err := refresh(); err != nil {
		t.Error(err)
	}
	expect("argoproj.io", "Workflow", NotServed)
}
