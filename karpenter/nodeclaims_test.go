package karpenter

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/informers"
)

var nodeClaims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

// A claimLab has a server with Nodes and NodeClaims and a Claims that follows it.
type claimLab struct {
	*Claims
	t      *testing.T
	server *fake.FakeDynamicClient

	mu      sync.Mutex
	changed []string // guarded by mu; nodes that were told of
}

func newClaimLab(t *testing.T, placement bool, nodes []runtime.Object) *claimLab {
	t.Helper()
	typed := typedfake.NewClientset(nodes...)
	typed.Resources = []*metav1.APIResourceList{{GroupVersion: "karpenter.sh/v1", APIResources: []metav1.APIResource{{Name: "nodeclaims"}, {Name: "nodepools"}}}}
	pools := schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	lab := &claimLab{t: t, server: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{nodeClaims: "NodeClaimList", pools: "NodePoolList"})}
	clients := informers.Clients{Typed: typed, Dynamic: lab.server}
	set, err := informers.New(clients, informers.Options{Placement: placement})
	if err != nil {
		t.Fatal(err)
	}
	if lab.Claims, err = NewClaims(clients, set, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	_, err = lab.Listen(func(node string) {
		lab.mu.Lock()
		defer lab.mu.Unlock()
		lab.changed = append(lab.changed, node)
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { set.Run(ctx) })
	if !cache.WaitForCacheSync(t.Context().Done(), set.Synced) {
		t.Fatal("the caches did not sync")
	}
	running.Go(func() { lab.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return lab
}

func (l *claimLab) eventually(what string, condition func() bool) {
	l.t.Helper()
	if err := wait.PollUntilContextTimeout(l.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition(), nil }); err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
}

func (l *claimLab) put(claim *karpv1.NodeClaim) {
	l.t.Helper()
	claim.APIVersion, claim.Kind = "karpenter.sh/v1", "NodeClaim"
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
	if err != nil {
		l.t.Fatal(err)
	}
	client, u := l.server.Resource(nodeClaims), &unstructured.Unstructured{Object: object}
	if _, err := client.Update(l.t.Context(), u, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := client.Create(l.t.Context(), u, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

func linked(name, id, node string) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), Finalizers: []string{karpv1.TerminationFinalizer}}}
	claim.Status.ProviderID, claim.Status.NodeName = id, node
	return claim
}

func machine(name, id string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
}

func TestClaimOfNode(t *testing.T) {
	owned := machine("owned", "")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "z", UID: "uid-by-owner"}}
	foreign := machine("foreign", "")
	foreign.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "NodeClaim", Name: "z", UID: "uid-by-owner"}}
	lab := newClaimLab(t, false, nil)
	going := linked("z-going", "i-twice", "")
	going.DeletionTimestamp = &metav1.Time{Time: now}
	for _, claim := range []*karpv1.NodeClaim{
		linked("by-id", "i-1", ""), linked("by-name", "", "named"), linked("both", "i-3", "reused"), linked("by-owner", "", ""),
		linked("twice", "i-twice", ""), going,
	} {
		lab.put(claim)
	}
	lab.eventually("all are cached", func() bool { return len(lab.claims.List()) == 6 })
	for name, tc := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"provider's ID":               {machine("x", "i-1"), "by-id"},
		"status.nodeName":             {machine("named", ""), "by-name"},
		"nodeName, ID not known yet":  {machine("named", "i-9"), "by-name"},
		"both":                        {machine("reused", "i-3"), "both"},
		"the name of another machine": {machine("reused", "i-4"), ""},
		"ID before name":              {machine("named", "i-1"), "by-id"},
		"ownerReference":              {owned, "by-owner"},
		"another group's NodeClaim":   {foreign, ""},
		"two, one of them going":      {machine("x", "i-twice"), "z-going"},
		"no NodeClaim":                {machine("x", "i-0"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if claim := lab.Of(tc.node); claim != nil {
				got = claim.Name
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What a NodeClaim says is told of its node, by whichever link there is; the rest is not.
func TestClaimChangesAreTold(t *testing.T) {
	lab := newClaimLab(t, true, []runtime.Object{machine("n1", "i-1"), machine("n2", "")})
	lab.eventually("settled", lab.Settled)
	told := func() []string {
		lab.mu.Lock()
		defer lab.mu.Unlock()
		told := lab.changed
		lab.changed = nil
		return told
	}
	first, second := linked("c1", "i-1", ""), linked("c2", "", "n2")
	lab.put(first)
	lab.put(second)
	first.StatusConditions().SetTrue("Initialized")
	lab.put(first)
	lab.eventually("both are cached", func() bool { return len(lab.claims.List()) == 2 })
	first.DeletionTimestamp = &metav1.Time{Time: now}
	lab.put(first)
	lab.eventually("the first's deletion", func() bool { return slices.Equal(told(), []string{"n1"}) })
	if got := lab.Deleting(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("deleting %v", got)
	}
	second.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Underutilized", "")
	lab.put(second)
	lab.eventually("the second's reason", func() bool { return slices.Equal(told(), []string{"n2"}) })
	if err := lab.server.Resource(nodeClaims).Delete(t.Context(), "c1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	lab.eventually("the first is gone", func() bool { return slices.Equal(told(), []string{"n1"}) })
	if got := lab.Deleting(); len(got) != 0 {
		t.Errorf("deleting %v", got)
	}
}

// A NodeClaim that only the Node's ownerReference names is found by both ways: from the Node, and from the deletion.
func TestDeletingFollowsTheOwner(t *testing.T) {
	owned := machine("owned", "")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "by-owner", UID: "uid-by-owner"}}
	lab := newClaimLab(t, false, []runtime.Object{owned, machine("reused", "i-new")})
	claim, former := linked("by-owner", "", ""), linked("former", "i-old", "reused")
	claim.DeletionTimestamp, former.DeletionTimestamp = &metav1.Time{Time: now}, &metav1.Time{Time: now}
	lab.put(claim)
	lab.put(former)
	lab.eventually("both are cached", func() bool { return len(lab.claims.List()) == 2 })
	if got := lab.Of(owned); got == nil || got.Name != "by-owner" {
		t.Errorf("from the Node: %v", got)
	}
	// Another machine's name is no link, here neither.
	if got := lab.Deleting(); !slices.Equal(got, []string{"owned"}) {
		t.Errorf("deleting %v, want owned", got)
	}
	lab.eventually("its node is told of", func() bool {
		lab.mu.Lock()
		defer lab.mu.Unlock()
		return slices.Contains(lab.changed, "owned")
	})
}

func TestLife(t *testing.T) {
	claim := linked("c", "i", "n")
	claim.CreationTimestamp = metav1.NewTime(now)
	waits := func() string {
		condition, stage, waits := LifeOf(claim).Waiting()
		if !waits {
			return ""
		}
		return condition + " " + stage.Reason
	}
	set := func(condition string, s metav1.ConditionStatus, reason string) {
		if s == metav1.ConditionTrue {
			claim.StatusConditions().SetTrueWithReason(condition, reason, "")
		} else {
			claim.StatusConditions().SetUnknownWithReason(condition, reason, "")
		}
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "Launched "},
		{func() { set("Launched", metav1.ConditionTrue, "Launched") }, "Registered AwaitingReconciliation"},
		{func() { set("Registered", metav1.ConditionTrue, "Registered") }, "Initialized AwaitingReconciliation"},
		{func() { set("Initialized", metav1.ConditionUnknown, "StartupTaintsExist") }, "Initialized StartupTaintsExist"},
		{func() { set("Initialized", metav1.ConditionTrue, "Initialized") }, ""},
		{func() { set("Drifted", metav1.ConditionTrue, "NodePoolDrifted") }, ""},
		{func() { claim.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Hour)} }, "Drained "},
		{func() { set("Drained", metav1.ConditionUnknown, "Draining") }, "Drained Draining"},
		{func() { set("Drained", metav1.ConditionTrue, "Drained") }, "VolumesDetached "},
	} {
		step.do()
		if got := waits(); got != step.want {
			t.Errorf("waits for %q, want %q", got, step.want)
		}
	}
	life := LifeOf(claim)
	if !life.Drifted.Is() || life.Drifted.Reason != "NodePoolDrifted" || life.Launched.Since.IsZero() || life.DisruptionReason.Is() ||
		life.NodeClaim != "c" || !life.Created.Equal(now) || !life.Deleted.Equal(now.Add(time.Hour)) {
		t.Errorf("life %+v", life)
	}
}

func TestClaimDeadline(t *testing.T) {
	grace := &metav1.Duration{Duration: 5 * time.Minute}
	const annotated = "2026-12-01T12:04:50Z"
	for name, tc := range map[string]struct {
		annotation string
		grace      *metav1.Duration
		deleted    time.Time
		want       time.Time
		from       DeadlineSource
	}{
		"none":                             {},
		"annotated":                        {annotation: annotated, deleted: now, want: now.Add(4*time.Minute + 50*time.Second), from: FromNodeClaim},
		"annotated before the grace":       {annotation: annotated, grace: grace, deleted: now, want: now.Add(4*time.Minute + 50*time.Second), from: FromNodeClaim},
		"not yet annotated":                {grace: grace, deleted: now, want: now.Add(5 * time.Minute), from: FromGracePeriod},
		"grace of one that stays":          {grace: grace},
		"annotated with what is no time":   {annotation: "soon", grace: grace, deleted: now},
		"being deleted without any period": {deleted: now},
	} {
		t.Run(name, func(t *testing.T) {
			claim := aClaim(tc.annotation, tc.deleted)
			claim.Spec.TerminationGracePeriod = tc.grace
			if at, from := claimDeadline(claim); !at.Equal(tc.want) || from != tc.from {
				t.Errorf("got %v from %q, want %v from %q", at, from, tc.want, tc.from)
			}
		})
	}
}
