package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// A write is one change of one pod's marker: was is what it is, text what it becomes: empty to remove
// it, and why then says why.
type write struct {
	pod       *corev1.Pod
	was, text string
	why       string
}

// plan lists the writes that make the markers of a node's pods what they should be: want has the marker of every pod
// that should bear one, by UID, and current reads the one that a pod bears. Pods that are right already need no write.
// It is pure.
func plan(pods []*corev1.Pod, want map[types.UID]Marker, current func(*corev1.Pod) (string, bool)) []write {
	var writes []write
	for _, pod := range pods {
		text, marked := current(pod)
		marker, wanted := want[pod.UID]
		switch {
		// 1. It should bear a marker: write it unless it says the same, to the byte.
		case wanted:
			if right := marker.String(); !marked || text != right {
				writes = append(writes, write{pod: pod, was: text, text: right})
			}
		// 2. It should bear none and is being deleted: it is still being lost (DESIGN.md section 5).
		case marked && pod.DeletionTimestamp != nil:
		// 3. It should bear none: remove what is there, whoever wrote it.
		case marked:
			writes = append(writes, write{pod: pod, was: text})
		}
	}
	return writes
}

// keepDoomed adds to want the markers that pods on a node that stays bear because the pod that owns them dies, for as long
// as that owner's death has nothing left to wait for but the garbage collector:
//
//  1. a driver on a node that goes is deleted; its executor, here, is marked;
//  2. the driver's object is gone, and with it whatever could say which node costs the executor: no verdict asks for the
//     marker any more;
//  3. the node's key comes, before the garbage collector does;
//  4. the garbage collector deletes the executor. Had 3 removed the marker, nobody would know that this is the loss.
//
// A pod that came to its own end is none to keep.
func keepDoomed(world fate.World, pods []*corev1.Pod, want map[types.UID]Marker, current func(*corev1.Pod) (string, bool)) {
	for _, pod := range pods {
		text, _ := current(pod)
		marker, ours := ParseMarker(text)
		if _, wanted := want[pod.UID]; wanted || !ours || marker.Verdict != fate.Lost || marker.Reason != fate.OwnerPodLost ||
			pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if ownersDie(world, pod, map[types.UID]bool{}) {
			want[pod.UID] = marker
		}
	}
}

// ownersDie tells whether every owner of the pod is gone, is being deleted, or is a pod of which the same holds. asked has
// the pods that were asked about, and true for those whose owners die: a circle of owners keeps itself alive.
func ownersDie(world fate.World, pod *corev1.Pod, asked map[types.UID]bool) bool {
	asked[pod.UID] = false
	for _, ref := range pod.OwnerReferences {
		owner, presence := world.Owner(pod.Namespace, ref)
		switch {
		case presence == fate.Gone:
			continue
		case presence != fate.Found:
			return false
		case owner.GetDeletionTimestamp() != nil:
			continue
		}
		parent, isPod := owner.(*corev1.Pod)
		if !isPod {
			return false
		}
		dies, known := asked[parent.UID]
		if known && !dies || !known && !ownersDie(world, parent, asked) {
			return false
		}
	}
	asked[pod.UID] = len(pod.OwnerReferences) > 0
	return asked[pod.UID]
}

// marksOnly leaves the removals out, for as long as it is not certain that a pod should bear no marker.
func marksOnly(writes []write) []write {
	var marks []write
	for _, w := range writes {
		if w.text != "" {
			marks = append(marks, w)
		}
	}
	return marks
}
