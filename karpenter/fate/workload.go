package fate

import (
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ofReplicaSet is rules 8, 13 and 15 for a ReplicaSet (k8s.io/kubernetes/pkg/controller/replicaset).
func (r *Roll) ofReplicaSet(pod *corev1.Pod, owner metav1.Object) ruling {
	set, read := owner.(*appsv1.ReplicaSet)
	if !read {
		return r.ofReplicas(pod, nil, ReplicaSet, 0)
	}
	return r.ofReplicas(pod, set, ReplicaSet, replicasOf(set.Spec.Replicas))
}

// ofReplicationController is rules 8, 13 and 15 for a ReplicationController, which the same code in Kubernetes runs.
func (r *Roll) ofReplicationController(pod *corev1.Pod, owner metav1.Object) ruling {
	controller, read := owner.(*corev1.ReplicationController)
	if !read {
		return r.ofReplicas(pod, nil, ReplicationController, 0)
	}
	return r.ofReplicas(pod, controller, ReplicationController, replicasOf(controller.Spec.Replicas))
}

func (r *Roll) ofReplicas(pod *corev1.Pod, owner metav1.Object, kind Reason, wanted int64) ruling {
	if owner == nil {
		return returns(kind, nil, "Its "+string(kind)+" makes it again")
	}
	if wanted == 0 { // 8
		return certain(Lost, OwnerScaledDown, "Its "+string(kind)+" "+owner.GetName()+" is scaled to 0 and makes nothing again")
	}
	if pod.DeletionTimestamp != nil && int64(r.snap.activePods(owner, string(kind))) >= wanted { // 13
		return certain(Returns, AlreadyReplaced, "It is Terminating, and its "+string(kind)+" "+owner.GetName()+
			" already has its "+number(wanted)+" other pods: nothing more is to come")
	}
	return certain(Returns, kind, "Its "+string(kind)+" "+owner.GetName()+" makes it again") // 15
}

// activePods counts the owner's pods that are neither finished nor Terminating.
func (s *snapshot) activePods(owner metav1.Object, kind string) int {
	key := keyOf(owner)
	if n, known := s.replicas[key]; known {
		return n
	}
	n := 0
	for _, pod := range s.PodsOwnedBy(owner.GetNamespace(), owner.GetUID()) {
		if active(pod) && controlledBy(pod, kind, owner) {
			n++
		}
	}
	s.replicas[key] = n
	return n
}

func replicasOf(n *int32) int64 {
	if n == nil {
		return 1 // the API's default
	}
	return int64(*n)
}

// setFacts is what a StatefulSet's other pods mean for one of them, whichever nodes go.
type setFacts struct {
	// waiting is the lowest ordinal that an OrderedReady set waits for now: its pod is missing, not Running and Ready, or
	// Terminating. math.MaxInt64 where there is none.
	waiting int64
	// held are the pods that never leave, because of a finalizer, once their node goes.
	held []member
	// members are all pods of the set with an ordinal.
	members []member
}

type member struct {
	ordinal int64
	pod     *corev1.Pod
}

// ofStatefulSet is rules 8, 12 and 15 for a StatefulSet (k8s.io/kubernetes/pkg/controller/statefulset).
func (r *Roll) ofStatefulSet(pod *corev1.Pod, owner metav1.Object) ruling {
	set, read := owner.(*appsv1.StatefulSet)
	if read && !includes(set, pod) { // 8
		return certain(Lost, OwnerScaledDown, "Its StatefulSet "+set.Name+" no longer includes this ordinal and does not make it again")
	}
	if len(pod.Finalizers) > 0 { // 12
		stranded := returns(StatefulSet, owner, "Its successor cannot be made while the finalizer "+pod.Finalizers[0]+
			" keeps the old object; whoever set it has to remove it")
		stranded.verdict, stranded.reason = Stranded, BlockedByFinalizer
		return stranded
	}
	if !read { // 15
		return returns(StatefulSet, nil, "Its StatefulSet makes it again")
	}
	if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		if ordinal, waits := r.waitsFor(set, pod); waits {
			return assumed(Returns, StatefulSet, "Its StatefulSet "+set.Name+" makes it again only after ordinal "+number(ordinal)+
				", which is not Ready (assumed: it becomes so)")
		}
	}
	again := certain(Returns, StatefulSet, "Its StatefulSet "+set.Name+" makes it again once the old object is gone")
	again.evicted = "after an eviction at once, on a dead machine only when its Node is deleted or tainted out-of-service"
	return again
}

// includes says whether the set's ordinals count this pod (stateful_set_utils.go getParentNameAndOrdinal, podInOrdinalRange).
func includes(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	ordinal, member := ordinalIn(set, pod)
	start := startOf(set)
	return member && ordinal >= start && ordinal < start+replicasOf(set.Spec.Replicas)
}

func ordinalIn(set *appsv1.StatefulSet, pod *corev1.Pod) (int64, bool) {
	digits, found := strings.CutPrefix(pod.Name, set.Name+"-")
	if !found {
		return 0, false
	}
	ordinal, err := strconv.ParseUint(digits, 10, 31)
	return int64(ordinal), err == nil
}

func startOf(set *appsv1.StatefulSet) int64 {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int64(set.Spec.Ordinals.Start)
}

// waitsFor returns the lower ordinal that keeps an OrderedReady set from making this pod again.
func (r *Roll) waitsFor(set *appsv1.StatefulSet, pod *corev1.Pod) (int64, bool) {
	mine, _ := ordinalIn(set, pod)
	facts := r.snap.set(set)
	if facts.waiting < mine {
		return facts.waiting, true
	}
	for _, m := range facts.held {
		if m.ordinal < mine && r.goes(m.pod.Spec.NodeName) {
			return m.ordinal, true
		}
	}
	return 0, false
}

// set reads the pods of a StatefulSet once per World.
func (s *snapshot) set(set *appsv1.StatefulSet) *setFacts {
	key := keyOf(set)
	if facts, known := s.sets[key]; known {
		return facts
	}
	facts := &setFacts{waiting: math.MaxInt64}
	settled := map[int64]bool{}
	for _, pod := range s.PodsOwnedBy(set.Namespace, set.UID) {
		ordinal, counted := ordinalIn(set, pod)
		if !counted || !controlledBy(pod, "StatefulSet", set) {
			continue
		}
		m := member{ordinal, pod}
		facts.members = append(facts.members, m)
		if len(pod.Finalizers) > 0 {
			facts.held = append(facts.held, m)
		}
		if pod.Status.Phase == corev1.PodRunning && ready(pod) && pod.DeletionTimestamp == nil {
			settled[ordinal] = true
		}
	}
	start := startOf(set)
	for ordinal := start; ordinal < start+replicasOf(set.Spec.Replicas); ordinal++ {
		if !settled[ordinal] { // found after at most as many steps as there are pods
			facts.waiting = ordinal
			break
		}
	}
	s.sets[key] = facts
	return facts
}

// ofPod is rule 10 for a pod that another pod controls, as a Spark driver does its executors.
func (r *Roll) ofPod(_ *corev1.Pod, owner metav1.Object) ruling {
	driver, read := owner.(*corev1.Pod)
	if !read {
		return assumed(Returns, CustomController, "The pod that controls it is taken to make it again (assumed: it could not be looked up)")
	}
	if r.doom(driver).dies {
		return certain(Lost, OwnerPodLost, "The pod "+driver.Name+" that controls it dies; "+
			"with that UID gone the garbage collector deletes it, whatever becomes of the owner")
	}
	return assumed(Returns, CustomController, "The pod "+driver.Name+" that controls it stays and is taken to make it again (assumed)")
}

// ofWorkflow is rule 11 for an Argo Workflow (argoproj/argo-workflows#2901).
func (r *Roll) ofWorkflow(_ *corev1.Pod, owner metav1.Object) ruling {
	workflow, read := owner.(*unstructured.Unstructured)
	if !read {
		return assumed(Returns, CustomController, "Its Workflow is taken to run the step again (assumed: its spec could not be read)")
	}
	templates, retries := retryStrategies(workflow)
	switch {
	case retries:
		return assumed(Returns, CustomController, "Its Workflow "+workflow.GetName()+
			" has a retryStrategy and is taken to run the step again (assumed: limit and policy are not looked at)")
	case templates:
		return certain(Lost, NoRetryStrategy, "Its Workflow "+workflow.GetName()+
			" has no retryStrategy, so the step fails with the pod; add one to its template or to templateDefaults")
	}
	return assumed(Returns, CustomController, "Its Workflow "+workflow.GetName()+
		" takes its templates from elsewhere and is taken to run the step again (assumed)")
}

// retryStrategies says whether the Workflow has templates of its own, and whether a retryStrategy stands in its spec, in
// its templateDefaults or in a template.
func retryStrategies(workflow *unstructured.Unstructured) (templates, retries bool) {
	spec, _ := workflow.Object["spec"].(map[string]any)
	defaults, _ := spec["templateDefaults"].(map[string]any)
	list, _ := spec["templates"].([]any)
	retries = spec["retryStrategy"] != nil || defaults["retryStrategy"] != nil
	for _, item := range list {
		template, _ := item.(map[string]any)
		retries = retries || template["retryStrategy"] != nil
	}
	return len(list) > 0, retries
}
