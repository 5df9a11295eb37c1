package readiness

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the Node Readiness Controller's published rule (deploy/readiness-rule.yaml).
const (
	DefaultCondition = "readiness.example.com/StaticPodsMirrored"
	TaintKey         = "readiness.k8s.io/StaticPodsMirrored"
)

// NotMirrored is the reason of the Event on a Node that is held for long.
const NotMirrored = "StaticPodsNotMirrored"

// Condition returns the condition that the Node is to have, and whether that differs from what it has. The transition time
// stays where the status does; one that somebody left out is put right, since holding is reckoned from it.
func (r Result) Condition(node *corev1.Node, conditionType string, now time.Time) (corev1.NodeCondition, bool) {
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	c := corev1.NodeCondition{
		Type: corev1.NodeConditionType(conditionType), Status: r.Status, Reason: r.Reason, Message: r.Message,
		LastHeartbeatTime: at, LastTransitionTime: at,
	}
	before := ConditionOf(node, conditionType)
	if before == nil {
		return c, true
	}
	untimed := before.LastTransitionTime.IsZero()
	if before.Status == c.Status && !untimed {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return c, untimed || before.Status != c.Status || before.Reason != c.Reason || before.Message != c.Message
}

// ConditionOf returns the Node's condition of that type, or nil.
func ConditionOf(node *corev1.Node, conditionType string) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; string(c.Type) == conditionType {
			return c
		}
	}
	return nil
}

// Settling holds AllMirrored back until the same mirrors have stood for a while: the scheduler's watch of pods may be
// behind its watch of nodes (facts/static-pods.md section 4.1). Its zero value is ready; it is not for concurrent use.
type Settling struct {
	mirrors string
	since   time.Time
	settled bool
}

// Wait returns how long the result is to be held back, seen at now. Every other reason holds at once.
func (s *Settling) Wait(r Result, settle time.Duration, now time.Time) time.Duration {
	switch {
	case r.Reason != AllMirrored:
		*s = Settling{}
		return 0
	case r.Mirrors != s.mirrors || s.since.IsZero():
		*s = Settling{mirrors: r.Mirrors, since: now}
	}
	if wait := settle - now.Sub(s.since); wait > 0 && !s.settled {
		return wait
	}
	s.settled = true
	return 0
}
