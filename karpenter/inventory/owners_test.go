package inventory

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

func ref(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
}

const owners = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: shop, uid: rs-1}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: trimmed, namespace: shop}
---
apiVersion: core.strimzi.io/v1beta2
kind: StrimziPodSet
metadata: {name: kafka, namespace: shop, uid: sps-1}
---
apiVersion: example.com/v1
kind: Fleet
metadata: {name: global, uid: fleet-1}
---
{"apiVersion":"batch/v1","kind":"JobList","items":[]}
---
apiVersion: v1
kind: Pod
metadata:
  name: a
  ownerReferences:
  - {apiVersion: apps/v1, kind: ReplicaSet, name: web}
  - {apiVersion: v1, kind: Pod, name: b, uid: whatever}
spec: {nodeName: n1}
---
apiVersion: v1
kind: Pod
metadata: {name: b}
---
apiVersion: v1
kind: Pod
metadata:
  name: c
  namespace: shop
  ownerReferences:
  - {apiVersion: apps/v1, kind: ReplicaSet, name: trimmed, uid: rs-2}
  - {apiVersion: apps/v1, kind: ReplicaSet, name: trimmed, uid: rs-2}
`

func TestOwner(t *testing.T) {
	inv, err := load(owners)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		namespace string
		ref       metav1.OwnerReference
		want      fate.Presence
	}{
		"there":                       {"shop", ref("apps/v1", "ReplicaSet", "web", "rs-1"), fate.Found},
		"another version":             {"shop", ref("apps/v1beta2", "ReplicaSet", "web", "rs-1"), fate.Found},
		"another UID":                 {"shop", ref("apps/v1", "ReplicaSet", "web", "rs-0"), fate.Gone},
		"another namespace":           {"default", ref("apps/v1", "ReplicaSet", "web", "rs-1"), fate.Gone},
		"another name, same UID":      {"shop", ref("apps/v1", "ReplicaSet", "wob", "rs-1"), fate.Gone},
		"another group, not in there": {"shop", ref("apps.kruise.io/v1", "ReplicaSet", "web", "rs-1"), fate.Unknown},
		"a kind without rules":        {"shop", ref("core.strimzi.io/v1beta2", "StrimziPodSet", "kafka", "sps-1"), fate.Found},
		"cluster-scoped":              {"shop", ref("example.com/v1", "Fleet", "global", "fleet-1"), fate.Found},
		"a kind not in there":         {"shop", ref("apps/v1", "StatefulSet", "db", "x"), fate.Unknown},
		"an empty typed list":         {"shop", ref("batch/v1", "Job", "sum", "x"), fate.Gone},
		"no kind":                     {"shop", ref("apps/v1", "", "web", "rs-1"), fate.Unknown},
		"malformed apiVersion":        {"shop", ref("a/b/c", "ReplicaSet", "web", "rs-1"), fate.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			object, got := inv.Owner(tc.namespace, tc.ref)
			if got != tc.want || (object != nil) != (got == fate.Found) {
				t.Errorf("Owner = %v, %v; want %v", object, got, tc.want)
			}
		})
	}
}

// Trimmed YAML: a UID that is missing on either side is no contradiction.
func TestOwnersWithoutUID(t *testing.T) {
	inv, err := load(owners)
	if err != nil {
		t.Fatal(err)
	}
	a, c := inv.PodsOn("n1")[0], find[interface {
		metav1.Object
	}](inv, podKind, types.NamespacedName{Namespace: "shop", Name: "c"})
	// The ReplicaSet stands in another namespace than pod a, so that only b is its owner.
	b, presence := inv.Owner("default", a.OwnerReferences[1])
	if presence != fate.Found || b.GetName() != "b" {
		t.Errorf("the owner of a is %v, %v", b, presence)
	}
	if KnownUID(b) != "" || b.GetUID() == "" || b.GetUID() == a.UID {
		t.Errorf("made UIDs: %q and %q, known %q", b.GetUID(), a.UID, KnownUID(b))
	}
	if got := inv.PodsOwnedBy("default", b.GetUID()); len(got) != 1 || got[0] != a {
		t.Errorf("PodsOwnedBy(b) = %v", got)
	}
	set, presence := inv.Owner("shop", c.GetOwnerReferences()[0])
	if presence != fate.Found {
		t.Fatalf("the trimmed ReplicaSet is %v", presence)
	}
	if got := inv.PodsOwnedBy("shop", set.GetUID()); len(got) != 1 {
		t.Errorf("a pod with two references to one owner is listed %d times", len(got))
	}
}

func TestTopOwner(t *testing.T) {
	inv, err := load(`
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-1
  uid: rs-1
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d, controller: true}]
---
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: rs-1, controller: true}]
spec: {nodeName: n1}
---
apiVersion: v1
kind: Pod
metadata: {name: bare, namespace: shop}
spec: {nodeName: n2}
`)
	if err != nil {
		t.Fatal(err)
	}
	if kind, name, ok := inv.TopOwner(inv.PodsOn("n1")[0]); !ok || kind.String() != "Deployment.apps" || name != "web" {
		t.Errorf("TopOwner = %v %s %v", kind, name, ok)
	}
	if _, _, ok := inv.TopOwner(inv.PodsOn("n2")[0]); ok {
		t.Error("a bare pod has an owner")
	}
}

func TestNodeClaim(t *testing.T) {
	inv, err := load(`
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: by-id, uid: c1}
status: {providerID: "aws:///a/i-1", nodeName: other}
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: by-owner, uid: c2}
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: by-name, uid: c3}
status: {nodeName: n3}
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: former, uid: c4}
status: {nodeName: n4, providerID: "aws:///a/i-4"}
---
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"spec":{"providerID":"aws:///a/i-1"}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2","ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"by-owner","uid":"c2"}]},"spec":{"providerID":"aws:///a/i-2"}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n3"}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n4"},"spec":{"providerID":"aws:///a/i-5"}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n5"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"no-uid"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"with-uid","uid":"c7"}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n6","ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"no-uid"}]}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n7","ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"with-uid"}]}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n8","ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"no-uid","uid":"c8"}]}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n9","ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"with-uid","uid":"c9"}]}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"a-stays","uid":"d1"},"status":{"providerID":"aws:///a/i-10"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"b-goes","uid":"d2","deletionTimestamp":"2026-12-01T12:00:00Z"},"status":{"providerID":"aws:///a/i-10"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"c-goes","uid":"d3","deletionTimestamp":"2026-12-01T12:00:00Z"},"status":{"providerID":"aws:///a/i-10"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"d-stays","uid":"d4"},"status":{"providerID":"aws:///a/i-10"}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n10"},"spec":{"providerID":"aws:///a/i-10"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"b-goes-by-name","uid":"e1","deletionTimestamp":"2026-12-01T12:00:00Z"},"status":{"nodeName":"n11"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"a-stays-by-name","uid":"e2"},"status":{"nodeName":"n11"}}
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"a-former","uid":"e3","deletionTimestamp":"2026-12-01T12:00:00Z"},"status":{"nodeName":"n11","providerID":"aws:///a/i-0"}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n11"},"spec":{"providerID":"aws:///a/i-11"}}`)
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]string{"n1": "by-id", "n2": "by-owner", "n3": "by-name", "n4": "", "n5": "",
		"n6": "no-uid", "n7": "with-uid", "n8": "no-uid", "n9": "", "n10": "b-goes", "n11": "b-goes-by-name"} {
		got := ""
		if claim := inv.NodeClaim(inv.Node(node)); claim != nil {
			got = claim.Name
		}
		if got != want {
			t.Errorf("the NodeClaim of %s is %q, want %q", node, got, want)
		}
	}
}
