package karpenter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/lru"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

const (
	// lookupTimeout bounds one live read of an owner. Its pods are Assumed until it answers, the others are not held up.
	lookupTimeout = 5 * time.Second
	// refusedFor is how long a refused read is not tried again: a role is not mended more often than that.
	refusedFor = time.Minute
	// goneKept is how many owners are remembered to be gone. A UID never comes back, so that only memory bounds it.
	goneKept = 8192
)

// owners looks up what owns a pod: in the caches, and where they have no such object by one live read, because pod and
// owner watches are unordered and a cache may lag. Safe for concurrent use.
type owners struct {
	informers *informers.Set
	dynamic   dynamic.Interface
	clock     func() time.Time

	gone *lru.Cache // of miss; has a lock of its own

	mu      sync.Mutex
	refused map[schema.GroupKind]time.Time // guarded by mu
}

func newOwners(set *informers.Set, client dynamic.Interface, clock func() time.Time) *owners {
	return &owners{informers: set, dynamic: client, clock: clock, gone: lru.New(goneKept), refused: map[schema.GroupKind]time.Time{}}
}

// A miss is an owner that the caches do not have and nobody has confirmed to be gone.
type miss struct {
	kind      schema.GroupKind
	namespace string
	name      string
	uid       types.UID
	// discovery: it is the kind that is not known, not the object.
	discovery bool
}

// builtin finds an owner of a built-in kind by name in its cache. Pods and Nodes are among them: both own pods.
func (o *owners) builtin(kind schema.GroupKind, namespace, name string) (object metav1.Object, watched bool) {
	set := o.informers
	var err error
	switch kind {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		object, err = set.Apps().V1().ReplicaSets().Lister().ReplicaSets(namespace).Get(name)
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		object, err = set.Apps().V1().StatefulSets().Lister().StatefulSets(namespace).Get(name)
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "DaemonSet"}:
		object, err = set.Apps().V1().DaemonSets().Lister().DaemonSets(namespace).Get(name)
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		object, err = set.Batch().V1().Jobs().Lister().Jobs(namespace).Get(name)
	case schema.GroupKind{Kind: "ReplicationController"}:
		object, err = set.Core().V1().ReplicationControllers().Lister().ReplicationControllers(namespace).Get(name)
	case schema.GroupKind{Kind: "Pod"}:
		object, err = set.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	case schema.GroupKind{Kind: "Node"}:
		object, err = set.Core().V1().Nodes().Lister().Get(name)
	default:
		return nil, false
	}
	if err != nil {
		return nil, true
	}
	return object, true
}

// lookup answers from memory alone. A miss that a live read may settle comes back with the answer Unknown.
func (o *owners) lookup(namespace string, ref metav1.OwnerReference) (metav1.Object, fate.Presence, *miss) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, fate.Unknown, nil
	}
	kind := schema.GroupKind{Group: version.Group, Kind: ref.Kind}
	wanted := miss{kind: kind, namespace: namespace, name: ref.Name, uid: ref.UID}

	object, watched := o.builtin(kind, namespace, ref.Name)
	if !watched && o.informers.Custom.Wants(kind) {
		object, watched = o.informers.Custom.Get(kind, namespace, ref.Name)
	}
	switch {
	// 1. The caches have it, with this UID.
	case object != nil && object.GetUID() == ref.UID:
		return object, fate.Found, nil
	// 2. They would have it: gone, if a live read has said so before, else to be confirmed by one.
	case watched:
		if _, gone := o.gone.Get(wanted); gone {
			return nil, fate.Gone, nil
		}
		if o.isRefused(kind) {
			return nil, fate.Unknown, nil
		}
		return nil, fate.Unknown, &wanted
	}
	// 3. A kind that nobody listed is not asked for, only whether it is served at all.
	_, serving := o.informers.Kinds.Lookup(kind)
	switch {
	case serving == informers.Served:
		return nil, fate.Unknown, nil
	case o.informers.Kinds.Stale(o.clock()):
		wanted.discovery = true
		return nil, fate.Unknown, &wanted
	case serving == informers.NotServed:
		return nil, fate.NotServed, nil
	}
	return nil, fate.Unknown, nil
}

// confirm settles misses by live reads and returns those that were found after all, by UID. It joins the errors of
// those it could not settle, which stay Unknown. A kind that was refused is no miss any more for refusedFor.
func (o *owners) confirm(ctx context.Context, misses []miss) (map[types.UID]metav1.Object, error) {
	found := map[types.UID]metav1.Object{}
	var errs []error
	for _, m := range misses {
		if m.discovery {
			if err := o.informers.Kinds.Refresh(ctx, o.clock()); err != nil {
				errs = append(errs, fmt.Errorf("asking what kinds the server serves: %w", err))
			}
			continue
		}
		object, err := o.read(ctx, m)
		switch {
		case apierrors.IsNotFound(err), err == nil && object.GetUID() != m.uid:
			o.gone.Add(m, nil)
		case err == nil:
			found[m.uid] = object
		default:
			if apierrors.IsForbidden(err) {
				o.refuse(m.kind)
			}
			errs = append(errs, fmt.Errorf("looking up owner %s %s/%s: %w", m.kind.Kind, m.namespace, m.name, err))
		}
	}
	return found, errors.Join(errs...)
}

// read gets the owner from the server, typed where its kind is built in.
func (o *owners) read(ctx context.Context, m miss) (metav1.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	resource, typed := builtinResource(m.kind)
	if typed == nil {
		var serving informers.Serving
		if resource, serving = o.informers.Kinds.Lookup(m.kind); serving != informers.Served {
			return nil, errors.New("the kind is not served")
		}
	}
	client := o.dynamic.Resource(resource.GroupVersionResource)
	var object *unstructured.Unstructured
	var err error
	if resource.Namespaced {
		object, err = client.Namespace(m.namespace).Get(ctx, m.name, metav1.GetOptions{})
	} else {
		object, err = client.Get(ctx, m.name, metav1.GetOptions{})
	}
	if err != nil || typed == nil {
		return object, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, err
	}
	return typed, nil
}

// typedObject is what every typed owner is to both its users.
type typedObject interface {
	metav1.Object
	runtime.Object
}

// builtinResource is how a built-in kind is read, and an empty object to read it into; nil for other kinds.
func builtinResource(kind schema.GroupKind) (informers.Resource, typedObject) {
	namespaced := func(version schema.GroupVersion, resource string) informers.Resource {
		return informers.Resource{GroupVersionResource: version.WithResource(resource), Namespaced: true}
	}
	switch kind {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		return namespaced(appsv1.SchemeGroupVersion, "replicasets"), &appsv1.ReplicaSet{}
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		return namespaced(appsv1.SchemeGroupVersion, "statefulsets"), &appsv1.StatefulSet{}
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "DaemonSet"}:
		return namespaced(appsv1.SchemeGroupVersion, "daemonsets"), &appsv1.DaemonSet{}
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		return namespaced(batchv1.SchemeGroupVersion, "jobs"), &batchv1.Job{}
	case schema.GroupKind{Kind: "ReplicationController"}:
		return namespaced(corev1.SchemeGroupVersion, "replicationcontrollers"), &corev1.ReplicationController{}
	case schema.GroupKind{Kind: "Pod"}:
		return namespaced(corev1.SchemeGroupVersion, "pods"), &corev1.Pod{}
	case schema.GroupKind{Kind: "Node"}:
		return informers.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes")}, &corev1.Node{}
	}
	return informers.Resource{}, nil
}

func (o *owners) isRefused(kind schema.GroupKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, refused := o.refused[kind]
	return refused && o.clock().Sub(at) < refusedFor
}

func (o *owners) refuse(kind schema.GroupKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused[kind] = o.clock()
}
