package karpenter

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

func aReplicaSet(uid types.UID) *appsv1.ReplicaSet {
	one := int32(1)
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: uid},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &one},
	}
}

// A lookupLab has caches and a server that may hold different things.
type lookupLab struct {
	*owners
	server *fake.FakeDynamicClient
	at     time.Time
}

func newLookupLab(t *testing.T, cached, served []runtime.Object) *lookupLab {
	t.Helper()
	typed, dynamic := typedfake.NewClientset(cached...), fake.NewSimpleDynamicClient(scheme.Scheme, served...)
	set, err := informers.New(informers.Clients{Typed: typed, Dynamic: dynamic}, informers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		set.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	if !cache.WaitForCacheSync(t.Context().Done(), set.Synced) {
		t.Fatal("the caches did not sync")
	}
	lab := &lookupLab{server: dynamic, at: now}
	lab.owners = newOwners(set, dynamic, func() time.Time { return lab.at })
	return lab
}

func (l *lookupLab) gets() (n int) {
	for _, action := range l.server.Actions() {
		if action.GetVerb() == "get" {
			n++
		}
	}
	return n
}

func owner(uid types.UID) metav1.OwnerReference {
	isController := true
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: uid, Controller: &isController}
}

// A miss of the cache is confirmed by one live read, and by no more than one.
func TestOwnerIsConfirmedLive(t *testing.T) {
	for name, tc := range map[string]struct {
		cached, served []runtime.Object
		presence       fate.Presence
		gets           int
	}{
		"in the cache":                     {[]runtime.Object{aReplicaSet("u")}, nil, fate.Found, 0},
		"the cache lags":                   {nil, []runtime.Object{aReplicaSet("u")}, fate.Found, 1},
		"gone":                             {nil, nil, fate.Gone, 1},
		"a namesake":                       {[]runtime.Object{aReplicaSet("other")}, []runtime.Object{aReplicaSet("other")}, fate.Gone, 1},
		"a namesake in the lagging cache":  {[]runtime.Object{aReplicaSet("former")}, []runtime.Object{aReplicaSet("u")}, fate.Found, 1},
		"another version in the reference": {[]runtime.Object{aReplicaSet("u")}, nil, fate.Found, 0},
	} {
		t.Run(name, func(t *testing.T) {
			lab := newLookupLab(t, tc.cached, tc.served)
			ref := owner("u")
			if name == "another version in the reference" {
				ref.APIVersion = "apps/v1beta2"
			}
			live := map[types.UID]metav1.Object{}
			var presence fate.Presence
			for range 3 { // as reconciles would
				world := newView(lab.informers, lab.owners, live)
				var object metav1.Object
				if object, presence = world.Owner("ns", ref); presence == fate.Found && *object.(*appsv1.ReplicaSet).Spec.Replicas != 1 {
					t.Error("found without its spec")
				}
				if len(world.misses) == 0 {
					continue
				}
				if presence != fate.Unknown {
					t.Errorf("decides %v on a miss that nobody confirmed", presence)
				}
				found, err := lab.confirm(t.Context(), world.misses)
				if err != nil {
					t.Fatal(err)
				}
				live = found
			}
			if presence != tc.presence || lab.gets() != tc.gets {
				t.Errorf("presence %v after %d reads, want %v after %d", presence, lab.gets(), tc.presence, tc.gets)
			}
		})
	}
}

// Where the read fails nothing is decided; where it is refused nothing is asked again for a while.
func TestOwnerReadFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		gets int
	}{
		"trouble": {errors.New("no route to host"), 2},
		"refused": {apierrors.NewForbidden(schema.GroupResource{Resource: "replicasets"}, "web", nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			lab := newLookupLab(t, nil, nil)
			lab.server.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			try := func() {
				_, presence, missed := lab.lookup("ns", owner("u"))
				if presence != fate.Unknown {
					t.Errorf("decides %v", presence)
				}
				if missed == nil {
					return
				}
				if _, err := lab.confirm(t.Context(), []miss{*missed}); !errors.Is(err, tc.err) {
					t.Errorf("error %v, want %v", err, tc.err)
				}
			}
			try()
			try()
			if lab.gets() != tc.gets {
				t.Errorf("%d reads, want %d", lab.gets(), tc.gets)
			}
			lab.at = lab.at.Add(refusedFor)
			try()
			if lab.gets() != tc.gets+1 {
				t.Errorf("%d reads after a while, want %d", lab.gets(), tc.gets+1)
			}
		})
	}
}

// A reference with a living owner's UID under a wrong name must not make that owner count as gone.
func TestForgedReferenceDoesNotPoison(t *testing.T) {
	lab := newLookupLab(t, nil, []runtime.Object{aReplicaSet("u")})
	forged := owner("u")
	forged.Name = "webb"
	for _, ref := range []metav1.OwnerReference{forged, owner("u")} {
		_, _, missed := lab.lookup("ns", ref)
		found, err := lab.confirm(t.Context(), []miss{*missed})
		if err != nil || (len(found) == 1) != (ref.Name == "web") {
			t.Errorf("%s: found %v, %v", ref.Name, found, err)
		}
	}
}

// An owner of a kind that nobody listed is asked for by nobody; only whether it is served matters.
func TestOwnerOfOtherKinds(t *testing.T) {
	lab := newLookupLab(t, nil, nil)
	for _, ref := range []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "u"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "u"},
		{APIVersion: "a/b/c", Kind: "Odd", Name: "c", UID: "u"},
	} {
		_, presence, missed := lab.lookup("ns", ref)
		if presence != fate.Unknown || missed != nil && !missed.discovery {
			t.Errorf("%s: %v, %+v", ref.Kind, presence, missed)
		}
	}
	if lab.gets() != 0 {
		t.Errorf("%d reads, want none", lab.gets())
	}
}

// One view answers the same as long as it lives, though the caches move on.
func TestViewIsOneSnapshot(t *testing.T) {
	lab := newLookupLab(t, []runtime.Object{aReplicaSet("u"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}}, nil)
	world := newView(lab.informers, lab.owners, nil)
	if len(world.PodsOn("n")) != 1 {
		t.Fatal("the pod is missing")
	}
	_, before := world.Owner("ns", owner("u"))
	store := lab.informers.Apps().V1().ReplicaSets().Informer().GetStore()
	for _, object := range store.List() {
		if err := store.Delete(object); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range lab.informers.Pods().GetStore().List() {
		if err := lab.informers.Pods().GetStore().Delete(object); err != nil {
			t.Fatal(err)
		}
	}
	if _, after := world.Owner("ns", owner("u")); after != before || before != fate.Found || len(world.PodsOn("n")) != 1 {
		t.Errorf("owner %v, then %v; %d pods", before, after, len(world.PodsOn("n")))
	}
}
