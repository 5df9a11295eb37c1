package karpenter

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// ToBeDeletedTaint is cluster-autoscaler's: its value is the unix time of the moment it was put on the node
// (sigs.k8s.io/cluster-autoscaler pkg/utils/taints).
const ToBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// A TaintRule says what state a taint puts its node in. Keys are compared as a whole, and an effect of PreferNoSchedule
// never counts, whatever the rule says.
type TaintRule struct {
	Key string
	// Value restricts the rule to one value; nil matches any.
	Value *string
	// Effect restricts the rule to one effect; empty matches NoSchedule and NoExecute.
	Effect corev1.TaintEffect
	State  State
}

// builtinTaints are the taints that are known to precede the end of a node (facts/disruption.md section 4a). Not in it on
// purpose, because they say nothing certain about the node's end: node.kubernetes.io/unschedulable (any cordon),
// node.kubernetes.io/not-ready and node.kubernetes.io/unreachable. --interruption-taint adds them.
var builtinTaints = []TaintRule{
	{Key: ToBeDeletedTaint, State: Committed},
	{Key: "aws-node-termination-handler/spot-itn", State: Committed},
	{Key: "aws-node-termination-handler/scheduled-maintenance", State: Committed},
	{Key: "aws-node-termination-handler/asg-lifecycle-termination", State: Committed},
	{Key: "cloud.google.com/impending-node-termination", State: Committed},
	{Key: "node.kubernetes.io/out-of-service", State: Committed},
	{Key: "node.cloudprovider.kubernetes.io/shutdown", State: Committed},
	{Key: "aks-node-termination-handler/preempt", State: Committed},
	{Key: "aks-node-termination-handler/terminate", State: Committed},
	{Key: "remediator.kubernetes.azure.com/unschedulable", State: Committed},
	{Key: "remediator.aks.microsoft.com/unschedulable", State: Committed}, // the name before 2023-09
	{Key: "autoscaling.cast.ai/draining", State: Committed},
	{Key: "atlassian.com/escalator-force", State: Committed},
	{Key: "medik8s.io/drain", State: Committed},
	{Key: "remediation.medik8s.io/self-node-remediation", State: Committed},
	{Key: "remediation.medik8s.io/fence-agents-remediation", State: Committed},
	{Key: "medik8s.io/fence-agents-remediation", State: Committed}, // the older name
	{Key: "spot-interruption", State: Committed},

	// Karpenter's own is Committed as soon as the Node or NodeClaim is being deleted: those are signals of their own.
	{Key: karpv1.DisruptedTaintKey, State: Pending},
	{Key: karpenterOldTaint, State: Pending},
	{Key: "aws-node-termination-handler/rebalance-recommendation", State: Pending},
	{Key: "atlassian.com/escalator", State: Pending},
	{Key: "decommission-pending", State: Pending},
}

// karpenterOldTaint is what Karpenter v1beta1 used (karpenter PR #1468).
const karpenterOldTaint = "karpenter.sh/disruption"

// ParseTaintRule reads key[=value][:effect], the form of --interruption-taint. The rule's state is Committed. "key=" asks
// for an empty value, "key" for any.
func ParseTaintRule(text string) (TaintRule, error) {
	rule := TaintRule{State: Committed}
	rest := text
	if i := strings.LastIndex(rest, ":"); i >= 0 {
		rest, rule.Effect = rest[:i], corev1.TaintEffect(rest[i+1:])
		switch rule.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute:
		case corev1.TaintEffectPreferNoSchedule:
			return TaintRule{}, malformedTaint(text, "PreferNoSchedule is only a wish and never counts; use NoSchedule, NoExecute or no effect")
		default:
			return TaintRule{}, malformedTaint(text, fmt.Sprintf("%q is no effect; use NoSchedule, NoExecute or none", rule.Effect))
		}
	}
	key, value, hasValue := strings.Cut(rest, "=")
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return TaintRule{}, malformedTaint(text, fmt.Sprintf("%q is no taint key: %s", key, problems[0]))
	}
	rule.Key = key
	if hasValue {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return TaintRule{}, malformedTaint(text, fmt.Sprintf("%q is no taint value: %s", value, problems[0]))
		}
		rule.Value = &value
	}
	return rule, nil
}

func malformedTaint(text, why string) error {
	return fmt.Errorf("malformed taint %q: %s (the form is key[=value][:effect], for example example.com/leaving=soon:NoSchedule)", text, why)
}

// String is the form that ParseTaintRule reads.
func (r TaintRule) String() string {
	text := r.Key
	if r.Value != nil {
		text += "=" + *r.Value
	}
	if r.Effect != "" {
		text += ":" + string(r.Effect)
	}
	return text
}

// matches tells whether the taint is one that the rule is about.
func (r TaintRule) matches(taint corev1.Taint) bool {
	return taint.Key == r.Key &&
		(r.Value == nil || *r.Value == taint.Value) &&
		(r.Effect == "" || r.Effect == taint.Effect)
}
