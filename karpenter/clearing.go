package karpenter

import (
	"fmt"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// explain says for every removal among the writes why the marker goes, for the log.
func explain(writes []write, going map[string]goingNode, fates []fate.Fate) {
	for i, w := range writes {
		if w.text == "" {
			writes[i].why = clearing(w, going, fates)
		}
	}
}

// clearing says why the marker of a pod goes, in words for people. It is pure.
func clearing(w write, going map[string]goingNode, fates []fate.Fate) string {
	marker, ours := ParseMarker(w.was)
	switch _, goes := going[marker.Node]; {
	// 1. Nobody but rollcall writes markers.
	case !ours:
		return "the annotation is none that rollcall writes"
	// 2. No node can cost it.
	case w.pod.Spec.NodeName == "":
		return "the pod runs on no node"
	// 3. The disruption was taken back.
	case !goes:
		return "node " + marker.Node + " stays: " + takenBack(marker)
	}
	// 4. The node still goes, and the pod comes back.
	for _, f := range fates {
		if f.Pod.UID == w.pod.UID {
			return fmt.Sprintf("the verdict is now %s (%s)", f.Verdict, f.Reason)
		}
	}
	return "the loss of the pod no longer follows from node " + marker.Node
}

func takenBack(marker Marker) string {
	switch marker.Cause {
	case NodeClaimDeleted:
		return "its NodeClaim is not being deleted any more"
	case NodeDeleted:
		return "it exists and is not being deleted"
	}
	return "the taint " + marker.Cause + " is gone or counts no more"
}
