package fate

import (
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// cluster is a World in memory for tests. Owners are looked up as an offline check does: gone where the kind is known,
// unknown where no object of it exists, not served where a test says so.
type cluster struct {
	pods      []*corev1.Pod
	nodes     []*corev1.Node
	owners    map[types.UID]metav1.Object
	known     map[string]bool // group/kind with at least one object
	notServed map[string]bool // group/kind
	budgets   []*policyv1.PodDisruptionBudget
	claims    []*corev1.PersistentVolumeClaim
	volumes   []*corev1.PersistentVolume

	onNode  map[string][]*corev1.Pod
	ownedBy map[types.UID][]*corev1.Pod
}

// newCluster holds whatever Kubernetes objects it is given; owners of other kinds come in with own.
func newCluster(objects ...any) *cluster {
	c := &cluster{
		owners:    map[types.UID]metav1.Object{},
		known:     map[string]bool{"/Pod": true},
		notServed: map[string]bool{},
		onNode:    map[string][]*corev1.Pod{},
		ownedBy:   map[types.UID][]*corev1.Pod{},
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Pod:
			c.addPod(o)
		case *corev1.Node:
			c.nodes = append(c.nodes, o)
		case *appsv1.ReplicaSet:
			c.own("apps/ReplicaSet", o)
		case *corev1.ReplicationController:
			c.own("/ReplicationController", o)
		case *appsv1.StatefulSet:
			c.own("apps/StatefulSet", o)
		case *appsv1.DaemonSet:
			c.own("apps/DaemonSet", o)
		case *batchv1.Job:
			c.own("batch/Job", o)
		case *policyv1.PodDisruptionBudget:
			c.budgets = append(c.budgets, o)
		case *corev1.PersistentVolumeClaim:
			c.claims = append(c.claims, o)
		case *corev1.PersistentVolume:
			c.volumes = append(c.volumes, o)
		case owned:
			c.own(o.kind, o.Object)
		}
	}
	return c
}

// owned is an object of a kind that has no type here, as "group/Kind".
type owned struct {
	metav1.Object
	kind string
}

func (c *cluster) own(kind string, o metav1.Object) {
	c.known[kind] = true
	c.owners[o.GetUID()] = o
}

func (c *cluster) addPod(pod *corev1.Pod) {
	c.pods = append(c.pods, pod)
	c.own("/Pod", pod)
	if pod.Spec.NodeName != "" {
		c.onNode[pod.Spec.NodeName] = append(c.onNode[pod.Spec.NodeName], pod)
	}
	for _, ref := range pod.OwnerReferences {
		c.ownedBy[ref.UID] = append(c.ownedBy[ref.UID], pod)
	}
}

func (c *cluster) PodsOn(node string) []*corev1.Pod { return c.onNode[node] }

func (c *cluster) PodsOwnedBy(namespace string, uid types.UID) []*corev1.Pod { return c.ownedBy[uid] }

func (c *cluster) Owner(namespace string, ref metav1.OwnerReference) (metav1.Object, Presence) {
	kind := groupOf(&ref) + "/" + ref.Kind
	if c.notServed[kind] {
		return nil, NotServed
	}
	if o, found := c.owners[ref.UID]; found && o.GetName() == ref.Name {
		return o, Found
	}
	if c.known[kind] {
		return nil, Gone
	}
	return nil, Unknown
}

func (c *cluster) Nodes() []*corev1.Node                   { return c.nodes }
func (c *cluster) Namespace(name string) *corev1.Namespace { return nil }
func (c *cluster) NodePools() []*karpv1.NodePool           { return nil }

func (c *cluster) PodDisruptionBudgets(namespace string) []*policyv1.PodDisruptionBudget {
	var in []*policyv1.PodDisruptionBudget
	for _, b := range c.budgets {
		if b.Namespace == namespace {
			in = append(in, b)
		}
	}
	return in
}

func (c *cluster) PersistentVolumeClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	for _, claim := range c.claims {
		if claim.Namespace == namespace && claim.Name == name {
			return claim
		}
	}
	return nil
}

func (c *cluster) PersistentVolume(name string) *corev1.PersistentVolume {
	for _, volume := range c.volumes {
		if volume.Name == name {
			return volume
		}
	}
	return nil
}

// The builders below keep a table's rows short. A UID is the object's name, unless a row changes it.

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}
}

// pod is Running and Ready on the node; mods change it.
func pod(name, node string, mods ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, mod := range mods {
		mod(p)
	}
	return p
}

// by makes "apps/ReplicaSet web" the pod's controller; owner is a group/Kind and a name, "/Pod driver" for the core group.
func by(owner string) func(*corev1.Pod) { return ownedWith(owner, true) }

// beside adds an owner without controller: true.
func beside(owner string) func(*corev1.Pod) { return ownedWith(owner, false) }

func ownedWith(owner string, controller bool) func(*corev1.Pod) {
	groupKind, name, _ := strings.Cut(owner, " ")
	group, kind, _ := strings.Cut(groupKind, "/")
	version := "v1"
	if group != "" {
		version = group + "/v1"
	}
	ref := metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID("uid-" + name)}
	if controller {
		ref.Controller = &controller
	}
	return func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, ref) }
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

func finalizer(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, name) }
}

func uid(uid types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = uid } }

// tracked is a Job's pod whose end the Job controller has not counted yet.
var tracked = finalizer(batchv1.JobTrackingFinalizer)

func index(i int) func(*corev1.Pod) {
	return annotated(batchv1.JobCompletionIndexAnnotation, strconv.Itoa(i))
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
}

func statefulSet(name string, replicas int32, mods ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: meta(name), Spec: appsv1.StatefulSetSpec{Replicas: &replicas}}
	for _, mod := range mods {
		mod(s)
	}
	return s
}

// job has one completion and parallelism 1; mods change it.
func job(name string, mods ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: meta(name)}
	j.Spec.Completions, j.Spec.Parallelism = ptr[int32](1), ptr[int32](1)
	for _, mod := range mods {
		mod(j)
	}
	return j
}

func ptr[T any](v T) *T { return &v }

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
}

// goes is a departure of which nothing more is known.
func goes(nodes ...string) []Departure {
	var all []Departure
	for _, n := range nodes {
		all = append(all, Departure{Node: n})
	}
	return all
}

func ask(c *cluster, going ...string) *Roll { return New(c, goes(going...), Options{Now: now}) }
