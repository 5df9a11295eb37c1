package karpenter

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/losses"
)

// Listen adds the handlers that turn changes into keys. Objects that exist already come as added ones, so that nothing
// else is needed after a start or a change of leader. The result removes them.
func (c *Controller) Listen() (remove func(), err error) {
	set := c.informers
	owner := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.ownerChanged(object) },
		UpdateFunc: func(old, object any) { c.ownerUpdated(old, object) },
		DeleteFunc: func(object any) { c.ownerChanged(object) },
	}
	handlers := []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{set.Nodes(), cache.ResourceEventHandlerFuncs{AddFunc: c.nodeAdded, UpdateFunc: c.nodeUpdated, DeleteFunc: c.nodeDeleted}},
		{set.Pods(), cache.ResourceEventHandlerFuncs{AddFunc: c.podAdded, UpdateFunc: c.podUpdated, DeleteFunc: c.podDeleted}},
		{set.Core().V1().ReplicationControllers().Informer(), owner},
		{set.Apps().V1().ReplicaSets().Informer(), owner},
		{set.Apps().V1().StatefulSets().Informer(), owner},
		{set.Apps().V1().DaemonSets().Informer(), owner},
		{set.Batch().V1().Jobs().Informer(), owner},
	}
	var undo []func()
	remove = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, h := range handlers {
		registration, err := h.informer.AddEventHandler(h.handler)
		if err != nil {
			remove()
			return nil, err
		}
		undo = append(undo, func() { _ = h.informer.RemoveEventHandler(registration) })
	}
	if c.options.Claims != nil {
		ignore, err := c.options.Claims.Listen(c.claimChanged, c.repooled)
		if err != nil {
			remove()
			return nil, err
		}
		undo = append(undo, ignore)
	}
	set.Custom.Handle(owner)
	return remove, nil
}

func (c *Controller) enqueueNode(name string) {
	now := c.options.Clock()
	c.reactions.signal(name, now)
	c.queue.AddRanked(queue.Key{Kind: NodeKey, Name: name}, c.rankOf(name, now))
}

func (c *Controller) nodeAdded(object any) {
	node := object.(*corev1.Node)
	if c.goes(node.Name) || c.isLost(node.Name) || len(c.informers.PodsBy(markedBy, node.Name)) > 0 {
		c.enqueueNode(node.Name)
	}
	c.placesChanged()
}

func (c *Controller) nodeUpdated(before, after any) {
	old, node := before.(*corev1.Node), after.(*corev1.Node)
	if !samePlace(old, node) {
		c.placesChanged()
	}
	switch config := c.options.Disruption; {
	case old.UID != node.UID:
		c.enqueueNode(node.Name)
	case old.Spec.ProviderID != node.Spec.ProviderID, !slices.Equal(claimUIDs(old), claimUIDs(node)):
		c.enqueueNode(node.Name) // from now on it may be another NodeClaim's
	case !config.signalled(old) && !config.signalled(node):
		// Heartbeats of healthy nodes, by far the most of all changes.
	case old.DeletionTimestamp.Equal(node.DeletionTimestamp) && isReady(old) == isReady(node) &&
		slices.EqualFunc(old.Spec.Taints, node.Spec.Taints, sameTaint):
	default:
		c.enqueueNode(node.Name)
	}
}

func (c *Controller) nodeDeleted(object any) {
	if node, ok := last[*corev1.Node](object); ok {
		c.enqueueNode(node.Name)
	}
	c.placesChanged()
}

// placesChanged has the nodes that go looked at again, where it matters to their pods what other nodes there are.
func (c *Controller) placesChanged() {
	if c.informers.Placement() {
		c.repooled()
	}
}

// samePlace tells whether two states of a Node are the same to a pod that looks for a place. Heartbeats are.
func samePlace(old, node *corev1.Node) bool {
	sameQuantity := func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }
	return old.UID == node.UID && isReady(old) == isReady(node) && old.Spec.Unschedulable == node.Spec.Unschedulable &&
		slices.EqualFunc(old.Spec.Taints, node.Spec.Taints, sameTaint) && maps.Equal(old.Labels, node.Labels) &&
		maps.EqualFunc(old.Status.Allocatable, node.Status.Allocatable, sameQuantity)
}

func sameTaint(a, b corev1.Taint) bool {
	return a.MatchTaint(&b) && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}

func (c *Controller) podAdded(object any) {
	pod := object.(*corev1.Pod)
	c.requests.note(pod)
	c.podChanged(pod)
}

func (c *Controller) podUpdated(before, after any) {
	old, pod := before.(*corev1.Pod), after.(*corev1.Pod)
	if old.UID != pod.UID { // the watch missed a deletion
		c.podDeleted(old)
		c.podAdded(pod)
		return
	}
	c.requests.note(pod)
	if losses.EndedByDisruption(pod) && !losses.EndedByDisruption(old) {
		c.ended(pod, losses.Lost)
	}
	if changed(old, pod) {
		c.podChanged(pod)
	}
}

func (c *Controller) podDeleted(object any) {
	pod, ok := last[*corev1.Pod](object)
	if !ok {
		return
	}
	ending := losses.Lost
	if losses.FinishedFirst(pod, c.requests.of(pod)) {
		ending = losses.Finished
	}
	c.ended(pod, ending)
	c.podChanged(pod)
}

// tellLost tells that the pod is lost, if rollcall had said that it would be.
func (c *Controller) tellLost(pod *corev1.Pod, marker Marker) {
	if marker.Verdict != fate.Lost {
		return
	}
	c.logDecision("a marked pod is lost", pod, marker, "lost", "")
	c.options.Metrics.Lost(string(marker.Verdict), string(marker.Reason), marker.Cause)
	c.herald.lost(pod, marker)
}

// podChanged adds the keys of all nodes whose markers may depend on the pod, if any of it has to do with a disruption.
func (c *Controller) podChanged(pod *corev1.Pod) {
	if _, marked := markOf(pod); marked && pod.Spec.NodeName == "" {
		c.queue.Add(queue.Key{Kind: PodKey, Namespace: pod.Namespace, Name: pod.Name})
		return
	}
	related := c.related(pod)
	if !slices.ContainsFunc(related, c.concerned) {
		return
	}
	nodes := map[string]bool{}
	for _, p := range related {
		nodes[p.Spec.NodeName] = true
	}
	delete(nodes, "")
	for node := range nodes {
		c.enqueueNode(node)
	}
}

// concerned tells whether a disruption has to do with the pod.
func (c *Controller) concerned(pod *corev1.Pod) bool {
	if _, marked := markOf(pod); marked {
		return true
	}
	return c.goes(pod.Spec.NodeName)
}

// goes tells whether the node of that name may be in a state other than None, without working out which.
func (c *Controller) goes(name string) bool {
	if name == "" {
		return false
	}
	node, err := c.informers.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return true // it does not exist: its key finds out
	}
	if c.options.Claims != nil {
		if claim := c.options.Claims.Of(node); claim != nil && claim.DeletionTimestamp != nil {
			return true
		}
	}
	return c.options.Disruption.signalled(node)
}

// ownerUpdated passes on what may change a verdict: the spec (generation), a deletion, and of a Job its status too.
func (c *Controller) ownerUpdated(before, after any) {
	old, okOld := before.(metav1.Object)
	owner, ok := after.(metav1.Object)
	if !ok || !okOld {
		return
	}
	if old.GetUID() != owner.GetUID() {
		c.ownerChanged(old)
	}
	if hasJobStatus(after) && old.GetResourceVersion() != owner.GetResourceVersion() ||
		old.GetGeneration() != owner.GetGeneration() || old.GetUID() != owner.GetUID() ||
		!old.GetDeletionTimestamp().Equal(owner.GetDeletionTimestamp()) {
		c.ownerChanged(owner)
	}
}

func (c *Controller) ownerChanged(object any) {
	owner, ok := last[metav1.Object](object)
	if !ok {
		return
	}
	for _, pod := range c.informers.PodsOwnedBy(owner.GetNamespace(), owner.GetUID()) {
		c.podChanged(pod)
		if hasJobStatus(object) {
			return // its pods are all related to each other
		}
	}
}

// last is the object of a handler's argument; of a deletion that was missed, its last known state.
func last[T any](object any) (T, bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	t, ok := object.(T)
	return t, ok
}

// changed tells whether anything that a verdict, a flag or a marker rests on differs: all of a pod but the status of its
// containers and its heartbeats.
func changed(old, pod *corev1.Pod) bool {
	return old.Spec.NodeName != pod.Spec.NodeName || old.Status.Phase != pod.Status.Phase ||
		!old.DeletionTimestamp.Equal(pod.DeletionTimestamp) || old.Generation != pod.Generation ||
		!maps.Equal(old.Labels, pod.Labels) || !maps.Equal(old.Annotations, pod.Annotations) ||
		!slices.Equal(old.Finalizers, pod.Finalizers) ||
		!slices.EqualFunc(old.OwnerReferences, pod.OwnerReferences, sameOwner) ||
		!slices.EqualFunc(old.Status.Conditions, pod.Status.Conditions, sameCondition)
}

func sameOwner(a, b metav1.OwnerReference) bool {
	isController := func(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion && isController(a) == isController(b)
}

func sameCondition(a, b corev1.PodCondition) bool { return a.Type == b.Type && a.Status == b.Status }
