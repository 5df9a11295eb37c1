package karpenter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/crdwatch"
	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/queue"
)

// Indexes of the NodeClaim cache, and two of the node cache.
const (
	byProviderID = "providerID" // of both
	byClaimUID   = "claimUID"   // of nodes, by the NodeClaim that their ownerReference names
	byNodeName   = "nodeName"
	byUID        = "uid"
	beingDeleted = "deleting"
	anyDeleting  = "any" // the one value of it
)

// Claims follows Karpenter's NodeClaims, and its NodePools where placement asks for them. It works with a cluster that
// has no Karpenter, gets it later or loses it, and where its objects are refused. Safe for concurrent use.
type Claims struct {
	informers *informers.Set
	claims    *crdwatch.Watch[karpv1.NodeClaim]
	pools     *crdwatch.Watch[karpv1.NodePool] // nil without placement
}

var _ NodeClaims = (*Claims)(nil)

// NewClaims makes the caches without starting them, over a node cache that must not have been started yet. pace is how
// often kinds that are not served are asked for again; zero means crdwatch.DefaultPace.
func NewClaims(clients informers.Clients, set *informers.Set, pace time.Duration) (*Claims, error) {
	if err := set.Nodes().AddIndexers(cache.Indexers{byProviderID: indexNodeProviderID, byClaimUID: indexNodeClaimUID}); err != nil {
		return nil, fmt.Errorf("indexing nodes by NodeClaim: %w", err)
	}
	c := &Claims{informers: set}
	version := schema.GroupVersion{Group: karpapis.Group, Version: "v1"}
	c.claims = crdwatch.New(clients.Typed.Discovery(), clients.Dynamic, trimClaim, crdwatch.Options{
		Resource: version.WithResource("nodeclaims"),
		Without:  "nodes are judged by their taints and deletion alone, which come later than Karpenter's own signal",
		Pace:     pace,
		Indexers: cache.Indexers{byProviderID: indexClaimProviderID, byNodeName: indexClaimNode, byUID: indexClaimUID, beingDeleted: indexClaimDeleting},
	})
	if set.Placement() {
		c.pools = crdwatch.New(clients.Typed.Discovery(), clients.Dynamic, trimPool, crdwatch.Options{
			Resource: version.WithResource("nodepools"),
			Without:  "nodes that Karpenter could launch are not counted as places",
			Pace:     pace,
		})
	}
	return c, nil
}

// Run keeps the caches until the context ends.
func (c *Claims) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.claims.Run(ctx) })
	if c.pools != nil {
		running.Go(func() { c.pools.Run(ctx) })
	}
	running.Wait()
}

// Settled tells whether it is known what there is: filled, not served, or refused.
func (c *Claims) Settled() bool {
	return c.claims.Settled() && (c.pools == nil || c.pools.Settled())
}

// State tells how rollcall sees the NodeClaims.
func (c *Claims) State() crdwatch.State { return c.claims.State() }

// Of returns the NodeClaim behind the Node, or nil. The provider's ID decides, as it does in Karpenter
// (sigs.k8s.io/karpenter pkg/utils/node); then the Node's ownerReference; then status.nodeName, unless the two name
// different machines: a Node's name may be used again.
func (c *Claims) Of(node *corev1.Node) *karpv1.NodeClaim {
	id := node.Spec.ProviderID
	if id != "" {
		if claim := strongest(c.claims.By(byProviderID, id)); claim != nil {
			return claim
		}
	}
	for _, uid := range claimUIDs(node) {
		if claim := strongest(c.claims.By(byUID, uid)); claim != nil {
			return claim
		}
	}
	return strongest(slices.DeleteFunc(c.claims.By(byNodeName, node.Name), func(claim *karpv1.NodeClaim) bool {
		return id != "" && claim.Status.ProviderID != "" && claim.Status.ProviderID != id
	}))
}

// strongest is one of several NodeClaims that name the same machine, which Karpenter itself takes for an error: one that
// is being deleted before others, then the first by name.
func strongest(claims []*karpv1.NodeClaim) *karpv1.NodeClaim {
	if len(claims) == 0 {
		return nil
	}
	return slices.MinFunc(claims, func(a, b *karpv1.NodeClaim) int {
		if goes := isDeleting(a); goes != isDeleting(b) {
			if goes {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

// claimUIDs are those of the NodeClaims that the Node's ownerReferences name.
func claimUIDs(node *corev1.Node) []string {
	var uids []string
	for _, ref := range node.OwnerReferences {
		if ref.Kind == "NodeClaim" && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group == karpapis.Group {
			uids = append(uids, string(ref.UID))
		}
	}
	return uids
}

// Deleting returns the names of the nodes whose NodeClaim is being deleted. Of decides whose it is.
func (c *Claims) Deleting() []string {
	names := map[string]bool{}
	for _, claim := range c.claims.By(beingDeleted, anyDeleting) {
		for _, name := range c.nodesOf(claim) {
			node, err := c.informers.Core().V1().Nodes().Lister().Get(name)
			if err != nil {
				continue // what is not there cannot go
			}
			if its := c.Of(node); its != nil && isDeleting(its) {
				names[name] = true
			}
		}
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	return sorted
}

// nodesOf returns the names of the nodes that the NodeClaim may be behind: by each of the links that Of follows, the other
// way round.
func (c *Claims) nodesOf(claim *karpv1.NodeClaim) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for index, key := range map[string]string{byProviderID: claim.Status.ProviderID, byClaimUID: string(claim.UID)} {
		if key == "" {
			continue
		}
		nodes, _ := c.informers.Nodes().GetIndexer().ByIndex(index, key) // fails only for an unknown index
		for _, node := range nodes {
			add(node.(*corev1.Node).Name)
		}
	}
	add(claim.Status.NodeName)
	return names
}

// NodePools returns all NodePools by name; none without placement.
func (c *Claims) NodePools() []*karpv1.NodePool {
	if c.pools == nil {
		return nil
	}
	return slices.SortedFunc(slices.Values(c.pools.List()), func(a, b *karpv1.NodePool) int { return cmp.Compare(a.Name, b.Name) })
}

// Listen calls changed with a node's name when its NodeClaim may have changed the node's disruption, and repooled when a
// NodePool changed what it could launch. The result ends it.
func (c *Claims) Listen(changed func(node string), repooled func()) (remove func(), err error) {
	tell := func(claims ...*karpv1.NodeClaim) {
		var names []string
		for _, claim := range claims {
			for _, name := range c.nodesOf(claim) {
				if !slices.Contains(names, name) {
					names = append(names, name)
					changed(name)
				}
			}
		}
	}
	removeClaims, err := c.claims.Handle(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if claim := object.(*karpv1.NodeClaim); speaks(claim) {
				tell(claim)
			}
		},
		UpdateFunc: func(before, after any) {
			if old, claim := before.(*karpv1.NodeClaim), after.(*karpv1.NodeClaim); saysOther(old, claim) {
				tell(old, claim)
			}
		},
		DeleteFunc: func(object any) {
			if claim, ok := last[*karpv1.NodeClaim](object); ok && speaks(claim) {
				tell(claim)
			}
		},
	})
	if err != nil || c.pools == nil {
		return removeClaims, err
	}
	removePools, err := c.pools.Handle(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { repooled() },
		UpdateFunc: func(before, after any) {
			if before.(*karpv1.NodePool).Generation != after.(*karpv1.NodePool).Generation {
				repooled()
			}
		},
		DeleteFunc: func(any) { repooled() },
	})
	if err != nil {
		removeClaims()
		return nil, err
	}
	return func() { removeClaims(); removePools() }, nil
}

// follow calls changed with every NodeClaim that there is and that changes, and gone with each that is no more.
func (c *Claims) follow(changed, gone func(*karpv1.NodeClaim)) (remove func(), err error) {
	return c.claims.Handle(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(object.(*karpv1.NodeClaim)) },
		UpdateFunc: func(_, object any) { changed(object.(*karpv1.NodeClaim)) },
		DeleteFunc: func(object any) {
			if claim, ok := last[*karpv1.NodeClaim](object); ok {
				gone(claim)
			}
		},
	})
}

// speaks tells whether the NodeClaim has anything to say about its node's disruption.
func speaks(claim *karpv1.NodeClaim) bool {
	return isDeleting(claim) || terminationTime(claim) != "" || disruptionReason(claim) != ""
}

// saysOther tells whether what a NodeClaim says about its node's disruption has changed, or whose it says it of.
func saysOther(old, claim *karpv1.NodeClaim) bool {
	if !speaks(old) && !speaks(claim) {
		return false
	}
	return old.UID != claim.UID || isDeleting(old) != isDeleting(claim) ||
		terminationTime(old) != terminationTime(claim) || disruptionReason(old) != disruptionReason(claim) ||
		old.Status.NodeName != claim.Status.NodeName || old.Status.ProviderID != claim.Status.ProviderID
}

func isDeleting(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }

func terminationTime(claim *karpv1.NodeClaim) string {
	return claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]
}

// trimClaim drops what was asked of the provider and what it gave: placement counts from the Node.
func trimClaim(claim *karpv1.NodeClaim) {
	claim.ManagedFields = nil
	delete(claim.Annotations, corev1.LastAppliedConfigAnnotation)
	claim.Spec.Requirements, claim.Spec.Resources = nil, karpv1.ResourceRequirements{}
	claim.Status.Capacity, claim.Status.Allocatable = nil, nil
}

func trimPool(pool *karpv1.NodePool) {
	pool.ManagedFields = nil
	delete(pool.Annotations, corev1.LastAppliedConfigAnnotation)
}

// claimChanged adds the node's key at once: Karpenter evicts the first pod about 0.1 s after it deleted the NodeClaim. Why
// it did so is asked later, and apart.
func (c *Controller) claimChanged(node string) {
	c.enqueueNode(node)
	why := queue.Key{Kind: ClaimKey, Name: node}
	c.queue.AddAfter(why, eventsSettle)
	c.queue.Rank(why, c.rankOf(node, c.options.Clock()))
}

// placesSettle is how long changes of the places that there are wait for more of them. Each reconcile of a node that goes
// places all pods anew, and new nodes come in flocks and change several times before they are Ready.
const placesSettle = time.Second

// repooled adds the keys of all nodes that go, once for all that changes within placesSettle: their pods may find a place
// now, or none any more.
func (c *Controller) repooled() {
	now := c.options.Clock()
	for _, name := range c.leaving() {
		key := queue.Key{Kind: NodeKey, Name: name}
		c.queue.AddAfter(key, placesSettle)
		c.queue.Rank(key, c.rankOf(name, now))
	}
}

func (c *Controller) claimOf(node *corev1.Node) *karpv1.NodeClaim {
	if c.options.Claims == nil {
		return nil
	}
	return c.options.Claims.Of(node)
}

func (c *Controller) nodePools() []*karpv1.NodePool {
	if c.options.Claims == nil {
		return nil
	}
	return c.options.Claims.NodePools()
}

// The index functions.

func indexNodeProviderID(object any) ([]string, error) {
	return oneKey(object.(*corev1.Node).Spec.ProviderID), nil
}

func indexNodeClaimUID(object any) ([]string, error) {
	return claimUIDs(object.(*corev1.Node)), nil
}

func indexClaimProviderID(object any) ([]string, error) {
	return oneKey(object.(*karpv1.NodeClaim).Status.ProviderID), nil
}

func indexClaimNode(object any) ([]string, error) {
	return oneKey(object.(*karpv1.NodeClaim).Status.NodeName), nil
}

func indexClaimUID(object any) ([]string, error) {
	return oneKey(string(object.(*karpv1.NodeClaim).UID)), nil
}

func indexClaimDeleting(object any) ([]string, error) {
	if isDeleting(object.(*karpv1.NodeClaim)) {
		return []string{anyDeleting}, nil
	}
	return nil, nil
}

func oneKey(key string) []string {
	if key == "" {
		return nil
	}
	return []string{key}
}
