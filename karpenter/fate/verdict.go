package fate

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations and finalizers that the rules read and that no imported package names.
const (
	mirrorAnnotation    = corev1.MirrorPodAnnotationKey
	daemonSetAnnotation = "cluster-autoscaler.kubernetes.io/daemonset-pod"
)

// ruling is what the first matching rule says, before flags and placement.
type ruling struct {
	verdict Verdict
	reason  Reason
	assumed bool
	// why is the sentence that the message begins with.
	why string
	// evicted says how an eviction in time would end instead, where it would (facts/fate-truth.md section 2).
	evicted string
}

func certain(v Verdict, r Reason, why string) ruling { return ruling{verdict: v, reason: r, why: why} }

func assumed(v Verdict, r Reason, why string) ruling {
	return ruling{verdict: v, reason: r, assumed: true, why: why}
}

// returns is rule 15 for an owner that was found (owner not nil) or could not be looked up.
func returns(reason Reason, owner metav1.Object, why string) ruling {
	if owner == nil {
		return assumed(Returns, reason, why+" (assumed: the owner could not be looked up)")
	}
	return certain(Returns, reason, why)
}

// rule applies the table of DESIGN.md section 3 to a pod of a going node, except rule 14. The numbers are its rows.
func (r *Roll) rule(pod *corev1.Pod) ruling {
	if finished(pod) { // 1
		return certain(Finished, PodFinished, "It has ended ("+string(pod.Status.Phase)+"); nothing more runs in it")
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror { // 2
		static := certain(Static, MirrorPod,
			"A static pod: its kubelet runs it from a manifest on the node, and it comes back only with the same machine")
		static.evicted = "a drain does not touch it"
		return static
	}
	controller := controllerOf(pod)
	if ruling, withNode := r.goesWithNode(pod, controller); withNode { // 3
		return ruling
	}
	if len(pod.OwnerReferences) == 0 { // 4
		return certain(Lost, NoController,
			"Nothing owns it, so nothing makes it again: give it a controller (a Deployment or a Job) or save what it does")
	}
	if controller == nil { // 5 and 6
		return r.withoutController(pod)
	}
	return r.controlled(pod, controller)
}

// goesWithNode is rule 3.
func (r *Roll) goesWithNode(pod *corev1.Pod, controller *metav1.OwnerReference) (ruling, bool) {
	if len(pod.OwnerReferences) == 0 && pod.Annotations[daemonSetAnnotation] == "true" {
		return certain(GoesWithNode, DaemonSetAnnotation,
			"Its annotation "+daemonSetAnnotation+" says that it belongs to its node like a DaemonSet's pod"), true
	}
	if controller == nil || isNode(controller) {
		for i := range pod.OwnerReferences {
			if isNode(&pod.OwnerReferences[i]) {
				nodeOwned := certain(GoesWithNode, NodeOwned, "Its Node owns it: the garbage collector deletes it with the Node")
				nodeOwned.evicted = "a drain evicts it like any pod, and nothing makes it again"
				return nodeOwned, true
			}
		}
		return ruling{}, false
	}
	k := kindOf(controller)
	if k == nil || k.withNode == "" {
		return ruling{}, false
	}
	switch _, presence := r.snap.Owner(pod.Namespace, *controller); presence {
	case Found:
		return certain(GoesWithNode, k.withNode, "A pod of "+name(controller)+": it belongs to its node"), true
	case Unknown:
		return assumed(GoesWithNode, k.withNode,
			"A pod of "+name(controller)+" (assumed: the owner could not be looked up): it belongs to its node"), true
	default:
		return ruling{}, false
	}
}

// withoutController is rules 5, 6 and 10 for a pod whose owners all lack controller: true. Owners that are pods and die
// themselves are as good as gone: the garbage collector takes this pod after the last of them (facts/fate-truth.md C4).
func (r *Roll) withoutController(pod *corev1.Pod) ruling {
	if r.doomByOwners(pod, doom{}).dies { // 10
		return certain(Lost, OwnerPodLost, "The pods that own it die; the garbage collector deletes it after the last of them")
	}
	var unknown, notServed bool
	for i := range pod.OwnerReferences {
		ref := &pod.OwnerReferences[i]
		switch _, presence := r.snap.Owner(pod.Namespace, *ref); presence {
		case Found: // 6
			return certain(Unsure, OwnerIsNoController, name(ref)+
				" owns it without controller: true; only its operator's documentation says whether that makes it again")
		case Unknown:
			unknown = true
		case NotServed:
			notServed = true
		}
	}
	switch {
	case unknown: // 6
		return assumed(Unsure, OwnerIsNoController, "Its owners lack controller: true and could not be looked up; "+
			"only their operator's documentation says whether it is made again")
	case notServed: // 5
		return assumed(Lost, OwnerGone, "Its owners are gone or of a kind that the server does not serve; nothing makes it again")
	}
	return certain(Lost, OwnerGone, "None of its owners exists any more; nothing makes it again") // 5
}

// controlled is rules 5 to 15 for a pod with a controller that is neither a Node nor a living DaemonSet.
func (r *Roll) controlled(pod *corev1.Pod, ref *metav1.OwnerReference) ruling {
	owner, presence := r.snap.Owner(pod.Namespace, *ref)
	switch presence {
	case Gone: // 5
		return certain(Lost, OwnerGone, "Its controller "+name(ref)+" with UID "+string(ref.UID)+
			" no longer exists; a namesake does not count. Nothing makes it again")
	case NotServed: // 5
		return assumed(Lost, OwnerGone, "The server serves no "+ref.Kind+" of group "+groupName(ref)+
			" (its CustomResourceDefinition is gone), so nothing makes it again")
	case Unknown:
		owner = nil
	}
	if makesNoPods(ref) { // 6
		why := "Its controller " + name(ref) + " is of a built-in kind that makes no pods; whoever set that owner must say whether it is made again"
		return ruling{verdict: Unsure, reason: OwnerIsNoController, assumed: presence == Unknown, why: why}
	}
	if owner != nil && owner.GetDeletionTimestamp() != nil { // 7
		return certain(Lost, OwnerDeleting, "Its controller "+name(ref)+" is being deleted and makes nothing again")
	}
	if k := kindOf(ref); k != nil && k.judge != nil { // 8 to 13, 15
		return k.judge(r, pod, owner)
	}
	why := name(ref) + " is taken to make it again (assumed: rollcall has no rules for its kind)"
	if owner == nil {
		why = name(ref) + " is taken to make it again (assumed: it could not be looked up)"
	}
	return assumed(Returns, CustomController, why+"")
}

// fate completes a ruling with flags and the message. The departure is nil for a pod on a node that stays.
func (s *snapshot) fate(pod *corev1.Pod, r ruling, d *Departure) Fate {
	f := Fate{Pod: pod, Verdict: r.verdict, Reason: r.reason, Certainty: Certain, Message: r.why}
	if r.assumed {
		f.Certainty = Assumed
	}
	if r.verdict == Finished {
		return f
	}
	f.Flags = s.flags(pod, d)
	f.Message = message(r, f.Flags, d)
	return f
}

// active is a pod that a ReplicaSet or a Job counts as one of its own: not finished, not Terminating
// (k8s.io/kubernetes/pkg/controller IsPodActive).
func active(pod *corev1.Pod) bool { return !finished(pod) && pod.DeletionTimestamp == nil }

// ready says whether the condition Ready is True.
func ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// controlledBy says whether the owner is the pod's controller, by UID and, for inputs without UIDs, by kind and name.
func controlledBy(pod *corev1.Pod, kind string, owner metav1.Object) bool {
	ref := controllerOf(pod)
	return ref != nil && ref.UID == owner.GetUID() && ref.Kind == kind && ref.Name == owner.GetName()
}

func name(ref *metav1.OwnerReference) string { return ref.Kind + " " + ref.Name }

func groupName(ref *metav1.OwnerReference) string {
	if group := groupOf(ref); group != "" {
		return group
	}
	return "core"
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
