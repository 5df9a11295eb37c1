package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// pageSize is how many objects one request asks for, kubectl's own choice.
const pageSize = 500

// fromCluster is the place of what an API server sent.
var fromCluster = place{file: "the cluster"}

// Clients are the ways to an API server. All that is sent are list requests and, for owners of kinds that are not listed,
// discovery.
type Clients struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
}

// Want is what the question needs beyond pods, nodes, NodeClaims and the built-in controllers.
type Want struct {
	// Placement adds what the placement of pods depends on: namespaces and NodePools.
	Placement bool
	// OwnerKinds are kinds of pod owners to look up beyond the built-in ones; owners of any other kind that is served stay
	// Unknown.
	OwnerKinds []schema.GroupKind
}

// FromCluster reads an Inventory from an API server. Without nodes or pods there is no answer, and an error; any other kind
// that may not be listed or is not served becomes a notice. Pods are listed before their owners and nodes, so that one that
// is missing is one that is gone.
func FromCluster(ctx context.Context, clients Clients, want Want) (*Inventory, error) {
	r := &clusterReader{builder: newBuilder(), clients: clients}
	for _, list := range r.essential() {
		if err := r.list(ctx, list); err != nil {
			return nil, explain(list.what, err)
		}
	}
	lists := r.optional()
	if want.Placement {
		lists = append(lists, r.forPlacement()...)
	}
	for _, list := range lists {
		if err := r.degrade(r.list(ctx, list), list); err != nil {
			return nil, explain(list.what, err)
		}
	}
	for _, kind := range want.OwnerKinds {
		if err := r.ownerKind(ctx, kind); err != nil {
			return nil, explain(kind.String(), err)
		}
	}
	r.unservedOwners()
	r.noticeAbsent()
	inv := r.build()
	for _, name := range slices.Sorted(maps.Keys(inv.StrayNodes())) {
		inv.vanished = append(inv.vanished, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return inv, nil
}

type clusterReader struct {
	*builder
	clients Clients
	absent  []string
}

// A listing is one kind to be listed, and what it costs when that fails.
type listing struct {
	kind schema.GroupKind
	what string
	// without says what is missing in the answer where the kind cannot be listed.
	without string
	page    func(context.Context, metav1.ListOptions) (runtime.Object, error)
}

// pages adapts the List method of a client.
func pages[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

func (r *clusterReader) essential() []listing {
	core := r.clients.Typed.CoreV1()
	return []listing{
		{podKind, "pods", "", pages(core.Pods("").List)},
		{nodeKind, "nodes", "", pages(core.Nodes().List)},
	}
}

func (r *clusterReader) optional() []listing {
	core, apps := r.clients.Typed.CoreV1(), r.clients.Typed.AppsV1()
	const owners = "their pods are assumed to come back"
	return []listing{
		{replicaSetKind, "replicasets.apps", owners, pages(apps.ReplicaSets("").List)},
		{replicationControllerKind, "replicationcontrollers", owners, pages(core.ReplicationControllers("").List)},
		{statefulSetKind, "statefulsets.apps", owners, pages(apps.StatefulSets("").List)},
		{daemonSetKind, "daemonsets.apps", "their pods are assumed to belong to them", pages(apps.DaemonSets("").List)},
		{jobKind, "jobs.batch", owners, pages(r.clients.Typed.BatchV1().Jobs("").List)},
		{budgetKind, "poddisruptionbudgets.policy", "no pod is flagged BlockedByPDB", pages(r.clients.Typed.PolicyV1().PodDisruptionBudgets("").List)},
		{claimKind, "persistentvolumeclaims", "local volumes are not seen", pages(core.PersistentVolumeClaims("").List)},
		{volumeKind, "persistentvolumes", "local volumes are not seen", pages(core.PersistentVolumes().List)},
		{nodeClaimKind, "nodeclaims.karpenter.sh", "a Karpenter node is seen to go only by its taint", r.dynamic(karpenterResource("nodeclaims"))},
	}
}

func (r *clusterReader) forPlacement() []listing {
	core := r.clients.Typed.CoreV1()
	return []listing{
		{namespaceKind, "namespaces", "namespace selectors of pod affinity match nothing", pages(core.Namespaces().List)},
		{nodePoolKind, "nodepools.karpenter.sh", "no pod is answered NeedsNode", r.dynamic(karpenterResource("nodepools"))},
	}
}

func karpenterResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: name}
}

func (r *clusterReader) dynamic(resource schema.GroupVersionResource) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return pages(r.clients.Dynamic.Resource(resource).List)
}

// list reads all pages of one kind. The kind counts as looked up only once the last page is in.
func (r *clusterReader) list(ctx context.Context, l listing) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := l.page(ctx, options)
		if next := expired(err); next != "" {
			options.Continue = next
			continue
		}
		if err != nil {
			return err
		}
		if err := meta.EachListItem(page, func(item runtime.Object) error { return r.keep(l.kind, item) }); err != nil {
			return err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("reading a page: %w", err)
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			r.shelf(l.kind)
			return nil
		}
	}
}

// expired returns the token with which the API server lets a list go on whose pages have become too old, if it does.
func expired(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().ListMeta.Continue
}

// keep takes one object from a page. An object on two pages counts once.
func (r *clusterReader) keep(kind schema.GroupKind, item runtime.Object) error {
	object, err := meta.Accessor(item)
	if err != nil {
		return fmt.Errorf("reading an object: %w", err)
	}
	if s := r.shelf(kind); s.has(object) {
		return nil
	}
	if u, ok := item.(*unstructured.Unstructured); ok {
		raw, err := u.MarshalJSON()
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", kind.Kind, u.GetName(), err)
		}
		return r.add(raw, metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()}, fromCluster)
	}
	knownKinds[kind].trim(object)
	return r.put(kind, object, fromCluster)
}

// degrade turns a refusal into a notice. A kind of which a part was read is known in part.
func (r *clusterReader) degrade(err error, l listing) error {
	if s := r.inv.shelves[l.kind]; err != nil && s != nil {
		s.partial = true
	}
	var unreadable *InputError
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		r.notice(fmt.Sprintf("you may not list %s: %s", l.what, l.without))
		return nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		r.absent = append(r.absent, l.what)
		return nil
	case errors.As(err, &unreadable):
		r.notice(fmt.Sprintf("%s: %s", unreadable.Problem, l.without))
		return nil
	}
	return err
}

// noticeAbsent names in one sentence what the cluster does not serve: without Karpenter that is the normal case.
func (r *clusterReader) noticeAbsent() {
	if len(r.absent) > 0 {
		r.notice("this cluster serves no " + strings.Join(r.absent, ", no "))
	}
}

// ownerKind lists a kind that the user named, in the version that the server prefers.
func (r *clusterReader) ownerKind(ctx context.Context, kind schema.GroupKind) error {
	if _, known := r.inv.shelves[kind]; known {
		return nil
	}
	resource, err := r.resourceOf(kind)
	if err != nil {
		return err
	}
	if resource.Empty() {
		r.shelf(kind).notServed = true
		r.notice(fmt.Sprintf("this cluster serves no %s: pods of such owners have lost them", kind))
		return nil
	}
	l := listing{kind, resource.GroupResource().String(), "their pods are assumed to come back", r.dynamic(resource)}
	return r.degrade(r.list(ctx, l), l)
}

// unservedOwners finds the kinds of pod owners that the server does not have at all: such an owner makes nothing again,
// as the controller has it. Discovery is asked only where pods have owners of kinds that were not listed.
func (r *clusterReader) unservedOwners() {
	open := map[schema.GroupKind]bool{}
	for _, pod := range all[*corev1.Pod](r.inv, podKind) {
		for _, ref := range pod.OwnerReferences {
			gv, err := schema.ParseGroupVersion(ref.APIVersion)
			kind := gv.WithKind(ref.Kind).GroupKind()
			// Pods of a DaemonSet of any group go with their node, whether or not the group is served.
			if err == nil && ref.Kind != "" && ref.Kind != daemonSetKind.Kind && r.inv.shelves[kind] == nil {
				open[kind] = true
			}
		}
	}
	if len(open) == 0 {
		return
	}
	lists, err := r.clients.Typed.Discovery().ServerPreferredResources()
	silent, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		r.notice(fmt.Sprintf("the cluster does not say what kinds it serves (%v): owners of kinds without rules are assumed to exist", err))
		return
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		for _, resource := range list.APIResources {
			if err == nil && !strings.Contains(resource.Name, "/") {
				delete(open, gv.WithKind(resource.Kind).GroupKind())
			}
		}
	}
	for version := range silent { // what did not answer may serve it
		maps.DeleteFunc(open, func(kind schema.GroupKind, _ bool) bool { return kind.Group == version.Group })
	}
	for kind := range open {
		r.shelf(kind).notServed = true
	}
}

// resourceOf asks discovery how a kind is listed; empty where the server does not have it.
func (r *clusterReader) resourceOf(kind schema.GroupKind) (schema.GroupVersionResource, error) {
	none := schema.GroupVersionResource{}
	server := r.clients.Typed.Discovery()
	groups, err := server.ServerGroups()
	if err != nil {
		return none, err
	}
	for _, group := range groups.Groups {
		if group.Name != kind.Group {
			continue
		}
		versions := append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...)
		for _, version := range versions {
			list, err := server.ServerResourcesForGroupVersion(version.GroupVersion)
			if err != nil {
				return none, err
			}
			for _, resource := range list.APIResources {
				if resource.Kind == kind.Kind && !strings.Contains(resource.Name, "/") {
					return schema.GroupVersionResource{Group: group.Name, Version: version.Version, Resource: resource.Name}, nil
				}
			}
		}
	}
	return none, nil
}

// explain says of a failed request what it was for, and of a refusal what right is missing.
func explain(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return &InputError{
			Where: fromCluster.file, Problem: "you may not list " + what, Err: err,
			Advice: fmt.Sprintf("ask for the verb list on %s in all namespaces, or work offline: kubectl rollcall check -f FILE", what),
		}
	}
	return fmt.Errorf("listing %s: %w", what, err)
}
