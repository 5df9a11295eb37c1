package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
