package fate

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// onDisruption is what a podFailurePolicy does with a pod whose machine dies.
type onDisruption struct {
	action batchv1.PodFailurePolicyAction
	// assumed: a rule that something else may match stands before, or there is nothing but such rules.
	assumed bool
}

// disruptionPolicy finds the first rule that matches DisruptionTarget=True. A dead machine reports no exit codes, so no
// onExitCodes rule can match (facts/fate-truth.md C3).
func disruptionPolicy(policy *batchv1.PodFailurePolicy) onDisruption {
	decided := onDisruption{action: batchv1.PodFailurePolicyActionCount}
	if policy == nil {
		return decided
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		switch {
		case slices.ContainsFunc(rule.OnPodConditions, disrupted):
			decided.action = rule.Action
			return decided
		case rule.OnExitCodes != nil || slices.ContainsFunc(rule.OnPodConditions, otherCondition):
			decided.assumed = true
		}
	}
	return decided
}

func otherCondition(p batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
	return p.Type != corev1.DisruptionTarget
}

func disrupted(p batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
	return p.Type == corev1.DisruptionTarget && statusOf(p) == corev1.ConditionTrue
}

// statusOf is the status that a pattern asks for. Manifests may leave it out, and the API server then writes True
// (k8s.io/kubernetes/pkg/apis/batch/v1 defaults.go).
func statusOf(p batchv1.PodFailurePolicyOnPodConditionsPattern) corev1.ConditionStatus {
	if p.Status == "" {
		return corev1.ConditionTrue
	}
	return p.Status
}

// matchPolicy finds the action for a pod that has failed or is Terminating, by what its status says
// (k8s.io/kubernetes/pkg/controller/job/pod_failure_policy.go).
func matchPolicy(policy *batchv1.PodFailurePolicy, status *corev1.PodStatus) batchv1.PodFailurePolicyAction {
	if policy == nil {
		return batchv1.PodFailurePolicyActionCount
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		if rule.OnExitCodes != nil {
			if matchExitCodes(rule.OnExitCodes, status.ContainerStatuses) || matchExitCodes(rule.OnExitCodes, status.InitContainerStatuses) {
				return rule.Action
			}
			continue
		}
		for _, pattern := range rule.OnPodConditions {
			for _, c := range status.Conditions {
				if c.Type == pattern.Type && c.Status == statusOf(pattern) {
					return rule.Action
				}
			}
		}
	}
	return batchv1.PodFailurePolicyActionCount
}

func matchExitCodes(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, statuses []corev1.ContainerStatus) bool {
	for i := range statuses {
		ended := statuses[i].State.Terminated
		if ended == nil || ended.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != statuses[i].Name {
			continue
		}
		listed := slices.Contains(rule.Values, ended.ExitCode)
		if rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed ||
			rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed {
			return true
		}
	}
	return false
}
