// Package informers owns the caches of the cluster that rollcall's reconcilers read: one shared informer for each kind,
// trimmed to what is used, with the indexes that are asked for on every event. It decides nothing and writes nothing.
package informers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Indexes of the pod cache.
const (
	byNode  = "node"
	byOwner = "owner"
)

// complainAfter is how often a watch that keeps failing is reported: often enough to be seen by who looks at the log
// because the pod is not ready, seldom enough to leave the log readable for a day.
const complainAfter = 30 * time.Second

// Options choose what is watched beside pods, nodes and the controllers of pods.
type Options struct {
	// Placement adds what the placement of pods depends on: volumes and their claims, budgets and namespaces.
	Placement bool
	// OwnerKinds are kinds of pod owners beyond the built-in ones.
	OwnerKinds []schema.GroupKind
}

// Clients are the three ways in which rollcall reads: typed for the built-in kinds, dynamic and metadata for the rest.
type Clients struct {
	Typed    kubernetes.Interface
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
}

// NewClients makes them. The built-in kinds come as protobuf, which costs both sides a fraction of JSON.
func NewClients(config *rest.Config) (clients Clients, err error) {
	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if clients.Typed, err = kubernetes.NewForConfig(typed); err == nil {
		clients.Dynamic, err = dynamic.NewForConfig(config)
	}
	if err == nil {
		clients.Metadata, err = metadata.NewForConfig(config)
	}
	if err != nil {
		return Clients{}, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return clients, nil
}

// Set is all informers of one process. Start it once; reading is safe from any goroutine. Objects that it hands out stay
// its own and must not be changed.
type Set struct {
	informers.SharedInformerFactory
	// Kinds says what the server serves.
	Kinds *Kinds
	// Custom holds the informers of Options.OwnerKinds.
	Custom *Custom

	pods      cache.SharedIndexInformer
	nodes     cache.SharedIndexInformer
	placement bool
	synced    []cache.InformerSynced

	mu         sync.Mutex
	complained map[string]time.Time // guarded by mu; by resource
}

// New makes the informers without starting them. It sends no request.
func New(clients Clients, o Options) (*Set, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(clients.Typed, 0, informers.WithTransform(Trim))
	kinds := newKinds(clients.Typed.Discovery())
	s := &Set{
		SharedInformerFactory: factory,
		Kinds:                 kinds,
		pods:                  factory.Core().V1().Pods().Informer(),
		nodes:                 factory.Core().V1().Nodes().Informer(),
		placement:             o.Placement,
		complained:            map[string]time.Time{},
	}
	s.Custom = newCustom(clients, kinds, o.OwnerKinds, s.complain)
	if err := s.pods.AddIndexers(cache.Indexers{byNode: podNode, byOwner: podOwners}); err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	watched := map[string]cache.SharedIndexInformer{
		"pods":                   s.pods,
		"nodes":                  s.nodes,
		"replicationcontrollers": factory.Core().V1().ReplicationControllers().Informer(),
		"replicasets.apps":       factory.Apps().V1().ReplicaSets().Informer(),
		"statefulsets.apps":      factory.Apps().V1().StatefulSets().Informer(),
		"daemonsets.apps":        factory.Apps().V1().DaemonSets().Informer(),
		"jobs.batch":             factory.Batch().V1().Jobs().Informer(),
	}
	if o.Placement {
		watched["persistentvolumes"] = factory.Core().V1().PersistentVolumes().Informer()
		watched["persistentvolumeclaims"] = factory.Core().V1().PersistentVolumeClaims().Informer()
		watched["namespaces"] = factory.Core().V1().Namespaces().Informer()
		watched["poddisruptionbudgets.policy"] = factory.Policy().V1().PodDisruptionBudgets().Informer()
	}
	for resource, informer := range watched {
		s.synced = append(s.synced, informer.HasSynced)
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { s.complain(resource, err) })
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", resource, err)
		}
	}
	return s, nil
}

// Run starts all informers and blocks until the context ends and they have stopped.
func (s *Set) Run(ctx context.Context) {
	s.Start(ctx.Done())
	s.Custom.run(ctx)
	s.Shutdown()
}

// Synced tells whether all caches have been filled once. Those of Options.OwnerKinds are not waited for: a kind that is
// not served, or not allowed, must not keep the rest from working.
func (s *Set) Synced() bool {
	for _, synced := range s.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// Pods is the pod informer, to add handlers and indexers to.
func (s *Set) Pods() cache.SharedIndexInformer { return s.pods }

// Nodes is the node informer, to add handlers and indexers to.
func (s *Set) Nodes() cache.SharedIndexInformer { return s.nodes }

// Placement tells whether Options.Placement was asked for.
func (s *Set) Placement() bool { return s.placement }

// PodsOn returns the pods bound to the node, whatever their phase; those bound to none for the empty name.
func (s *Set) PodsOn(node string) []*corev1.Pod { return s.PodsBy(byNode, node) }

// PodsOwnedBy returns the pods of the namespace with an ownerReference to the UID.
func (s *Set) PodsOwnedBy(namespace string, uid types.UID) []*corev1.Pod {
	return s.PodsBy(byOwner, ownerKey(namespace, uid))
}

// PodsBy returns the pods that an index has under the value. An index that does not exist has none.
func (s *Set) PodsBy(index, value string) []*corev1.Pod {
	objects, err := s.pods.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

func podNode(object any) ([]string, error) {
	return []string{object.(*corev1.Pod).Spec.NodeName}, nil
}

func podOwners(object any) ([]string, error) {
	pod := object.(*corev1.Pod)
	var keys []string
	for _, ref := range pod.OwnerReferences {
		keys = append(keys, ownerKey(pod.Namespace, ref.UID))
	}
	return keys, nil
}

func ownerKey(namespace string, uid types.UID) string { return namespace + "/" + string(uid) }

// complain reports a failing watch. Client-go tries again by itself, and an expired watch is its everyday business.
func (s *Set) complain(resource string, err error) {
	if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.complained[resource]) >= complainAfter {
		s.complained[resource] = now
		if apierrors.IsForbidden(err) {
			slog.Error("not allowed to watch: the role needs the verbs get, list and watch on the resource", "resource", resource, "error", err)
			return
		}
		slog.Warn("a watch failed and is tried again", "resource", resource, "error", err)
	}
}
