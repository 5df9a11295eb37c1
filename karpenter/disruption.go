// Package karpenter owns the disruption of nodes: what state a node is in and why (DESIGN.md section 2), the reconciler
// that acts on it, and the marker it leaves on pods (section 5). Verdicts are package fate's.
package karpenter

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// State is how far a node is on its way out.
type State string

// The states.
const (
	None      State = "None"
	Pending   State = "Pending"   // marked, can still be undone
	Committed State = "Committed" // the node is going
)

// Causes that are no taint key.
const (
	NodeClaimDeleted = "NodeClaimDeleted"
	NodeDeleted      = "NodeDeleted"
)

// staleAfter is how old a ToBeDeletedTaint may become on a Ready node. cluster-autoscaler waits 5 s, evicts for at most
// 10 min of grace and then deletes or takes the taint back; what is still there after 15 min was forgotten
// (facts/disruption.md section 6d, item 29).
const staleAfter = 15 * time.Minute

// Disruption is the state of one node at one moment. The zero value of each time means that none is known.
type Disruption struct {
	State State
	// Cause is the signal behind the state: a taint key, NodeClaimDeleted or NodeDeleted; empty with None.
	Cause string
	// Since is the signal time; SinceEstimated says that it is only an upper bound.
	Since          time.Time
	SinceEstimated bool
	// Notice is what the cause is known to give from Since to the end of the machine; zero where nothing is known.
	Notice time.Duration
	// Deadline is the moment after which pods are killed; DeadlineFrom says who knows it.
	Deadline     time.Time
	DeadlineFrom DeadlineSource
	// Detail is Karpenter's own word for what is behind it, where there is one: the reason of its voluntary disruption
	// (Underutilized, Empty, Drifted) or of the Event that told of an interruption (SpotInterrupted, ...).
	Detail string
	// Stale says that the node bears a ToBeDeletedByClusterAutoscaler taint that counts for nothing.
	Stale bool
}

// signal is one thing that says that a node goes.
type signal struct {
	state     State
	cause     string
	since     time.Time
	estimated bool
}

// Disrupt evaluates DESIGN.md section 2 for a node and its NodeClaim (nil where it has none). Where nothing tells when
// the signal came, Since is zero: FirstSeen fills it in. The objects are only read.
func (c *Config) Disrupt(node *corev1.Node, claim *karpv1.NodeClaim, now time.Time) Disruption {
	signals, stale := c.signals(node, claim, now)
	d := Disruption{State: None, Stale: stale}
	for _, s := range signals {
		if s.state == d.State || d.State == Committed {
			continue // the first of those that give the strongest state
		}
		d.State, d.Cause, d.Since, d.SinceEstimated = s.state, s.cause, s.since, s.estimated
	}
	if d.State == None {
		return d
	}
	d.Notice = c.Notice[d.Cause]
	if claim != nil {
		d.Deadline, d.DeadlineFrom = claimDeadline(claim)
		d.Detail = disruptionReason(claim)
	}
	return d.withNotice()
}

// signals lists all signals in the order in which they name the cause: taints in the Node's order, the NodeClaim's
// deletion, the Node's.
func (c *Config) signals(node *corev1.Node, claim *karpv1.NodeClaim, now time.Time) (signals []signal, stale bool) {
	for _, taint := range node.Spec.Taints {
		state := c.taintState(taint)
		if state == None {
			continue
		}
		if isStale(taint, node, now) {
			stale = true
			continue
		}
		since, estimated := taintTime(taint, node)
		signals = append(signals, signal{state, taint.Key, since, estimated})
	}
	if claim != nil && claim.DeletionTimestamp != nil {
		signals = append(signals, signal{Committed, NodeClaimDeleted, claim.DeletionTimestamp.Time, false})
	}
	if node.DeletionTimestamp != nil {
		signals = append(signals, signal{Committed, NodeDeleted, node.DeletionTimestamp.Time, false})
	}
	return signals, stale
}

// FirstSeen fills in a signal time that nothing in the cluster tells: seen is when rollcall first saw the signal. It
// replaces an estimate where it is earlier, and never a time that is known.
func (d Disruption) FirstSeen(seen time.Time) Disruption {
	known := !d.Since.IsZero()
	if d.State == None || known && (!d.SinceEstimated || !seen.Before(d.Since)) {
		return d
	}
	d.Since, d.SinceEstimated = seen, true
	return d.withNotice()
}

// withNotice makes the deadline the earlier of the one known so far and the one that the notice gives.
func (d Disruption) withNotice() Disruption {
	if d.Notice == 0 || d.Since.IsZero() {
		return d
	}
	if end := d.Since.Add(d.Notice); d.Deadline.IsZero() || end.Before(d.Deadline) {
		d.Deadline, d.DeadlineFrom = end, FromNotice
	}
	return d
}

// Departure says what the disruption means for the pods of its node. The result points into the node.
func (d Disruption) Departure(node *corev1.Node) fate.Departure {
	departure := fate.Departure{
		Node:      node.Name,
		Karpenter: d.drainedByKarpenter(node),
		Deadline:  d.Deadline,
		Committed: d.State == Committed,
	}
	if !d.Deadline.IsZero() && !d.Since.IsZero() {
		// A deadline that was over when the signal came leaves no notice, which must not read as "not known".
		departure.Notice = max(d.Deadline.Sub(d.Since), 1)
	}
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; taint.Key == d.Cause && taint.Effect == corev1.TaintEffectNoExecute {
			departure.NoExecute = taint
		}
	}
	return departure
}

// drainedByKarpenter tells whether the cause is Karpenter's. A deleted Node is drained by Karpenter where it bears
// Karpenter's finalizer (karpenter pkg/controllers/node/termination).
func (d Disruption) drainedByKarpenter(node *corev1.Node) bool {
	switch d.Cause {
	case karpv1.DisruptedTaintKey, karpenterOldTaint, NodeClaimDeleted:
		return true
	case NodeDeleted:
		for _, finalizer := range node.Finalizers {
			if finalizer == karpv1.TerminationFinalizer {
				return true
			}
		}
	}
	return false
}

// isStale tells whether cluster-autoscaler forgot the taint. A value that is no plausible unix time has no age
// and still counts: a warning too many is better than one too few.
func isStale(taint corev1.Taint, node *corev1.Node, now time.Time) bool {
	if taint.Key != ToBeDeletedTaint || node.DeletionTimestamp != nil || !isReady(node) {
		return false
	}
	added, ok := unixValue(taint)
	return ok && now.Sub(added) > staleAfter
}

// The unix times that a taint's value may plausibly be: from Kubernetes' first release on, and far below what the same time
// is in milliseconds, whose year would have five digits and would not fit into JSON.
const (
	earliestValue = 1402185600 // 2014-06-08
	latestValue   = 4102444800 // 2100-01-01
)

func unixValue(taint corev1.Taint) (time.Time, bool) {
	seconds, err := strconv.ParseInt(taint.Value, 10, 64)
	if err != nil || seconds < earliestValue || seconds > latestValue {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}

// staleIn is the time until a taint of the node becomes stale; false where none will by the passing of time alone.
func staleIn(node *corev1.Node, now time.Time) (time.Duration, bool) {
	for _, taint := range node.Spec.Taints {
		if added, ok := unixValue(taint); ok && taint.Key == ToBeDeletedTaint {
			if left := added.Add(staleAfter).Sub(now); left >= 0 {
				return left + 1, true
			}
		}
	}
	return 0, false
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
