// Package fate says what becomes of a pod when its node goes: the verdicts of DESIGN.md section 3 and the placement of
// section 4. It is pure: it asks a World, imports no client, reads no clock and writes nothing.
package fate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Verdict is what becomes of one pod when its node goes.
type Verdict string

// The verdicts, in the order in which people want to read them.
const (
	Lost         Verdict = "Lost"
	Stranded     Verdict = "Stranded"
	Unsure       Verdict = "Unsure"
	Returns      Verdict = "Returns"
	GoesWithNode Verdict = "GoesWithNode"
	Static       Verdict = "Static"
	Finished     Verdict = "Finished"
)

// Reason is the rule that decided a verdict.
type Reason string

// The reasons, by row of the table in DESIGN.md section 3.
const (
	PodFinished           Reason = "PodFinished"           // 1
	MirrorPod             Reason = "MirrorPod"             // 2
	NodeOwned             Reason = "NodeOwned"             // 3
	DaemonSet             Reason = "DaemonSet"             // 3
	DaemonSetAnnotation   Reason = "DaemonSetAnnotation"   // 3
	NoController          Reason = "NoController"          // 4
	OwnerGone             Reason = "OwnerGone"             // 5
	OwnerIsNoController   Reason = "OwnerIsNoController"   // 6
	OwnerDeleting         Reason = "OwnerDeleting"         // 7
	OwnerScaledDown       Reason = "OwnerScaledDown"       // 8
	JobFinished           Reason = "JobFinished"           // 9
	JobSuspended          Reason = "JobSuspended"          // 9
	JobWillNotRetry       Reason = "JobWillNotRetry"       // 9
	OwnerPodLost          Reason = "OwnerPodLost"          // 10
	NoRetryStrategy       Reason = "NoRetryStrategy"       // 11
	BlockedByFinalizer    Reason = "BlockedByFinalizer"    // 12
	AlreadyReplaced       Reason = "AlreadyReplaced"       // 13
	NoPlaceLeft           Reason = "NoPlace"               // 14
	ReplicaSet            Reason = "ReplicaSet"            // 15
	ReplicationController Reason = "ReplicationController" // 15
	StatefulSet           Reason = "StatefulSet"           // 15
	Job                   Reason = "Job"                   // 15
	CustomController      Reason = "CustomController"      // 15
)

// Certainty says whether a verdict rests on what was read or on an assumption.
type Certainty string

// The certainties.
const (
	Certain Certainty = "Certain"
	Assumed Certainty = "Assumed"
)

// Flag is a fact about a pod that a person wants beside the verdict.
type Flag string

// The flags, in the order in which they are reported.
const (
	EmptyDirData       Flag = "EmptyDirData"
	HostPathData       Flag = "HostPathData"
	LocalVolume        Flag = "LocalVolume"
	GraceExceedsNotice Flag = "GraceExceedsNotice"
	NotEvicted         Flag = "NotEvicted"
	DoNotDisrupt       Flag = "DoNotDisrupt"
	BlockedByPDB       Flag = "BlockedByPDB"
	HasFinalizer       Flag = "HasFinalizer"
	Terminating        Flag = "Terminating"
	NoNodeOwner        Flag = "NoNodeOwner"
	Unready            Flag = "Unready"
)

// Placement says where a pod that would be recreated finds room; empty where it needs none or none was asked for.
type Placement string

// The placements of DESIGN.md section 4.
const (
	FitsNow   Placement = "FitsNow"
	NeedsNode Placement = "NeedsNode"
	NoPlace   Placement = "NoPlace"
)

// Fate is the answer for one pod.
type Fate struct {
	// Pod is the World's object; it must not be changed.
	Pod       *corev1.Pod
	Verdict   Verdict
	Reason    Reason
	Certainty Certainty
	Placement Placement
	Flags     []Flag
	// Message says in words a person can act on why, and where an eviction in time would end differently.
	Message string
	// By names the going nodes that cost the pod, set only for collateral (a pod on a node that stays), nearest deadline
	// first, then by name.
	By []string
}

// Departure is a node that goes, with what its cause means for pods.
type Departure struct {
	Node string
	// Karpenter is true where Karpenter drains the node: it evicts no pod that tolerates karpenter.sh/disrupted:NoSchedule.
	Karpenter bool
	// NoExecute is the NoExecute taint that is the cause, or nil.
	NoExecute *corev1.Taint
	// Notice is deadline minus signal time; zero where no deadline is known.
	Notice time.Duration
	// Deadline is the moment after which pods are killed; zero where it is not known.
	Deadline time.Time
	// Committed is true where the node cannot be kept any more.
	Committed bool
}
