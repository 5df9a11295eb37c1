package truth

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// What messages say where a Job's pod that is evicted may end otherwise.
const (
	saysExitCode = "exit code 0 counts as done"
	saysPolicy   = "podFailurePolicy has a rule that an eviction"
)

// jobOf returns the making of a Job with one pod, restartPolicy Never.
func jobOf(mods ...func(*batchv1.Job)) func(*site) {
	return func(s *site) {
		job := &batchv1.Job{ObjectMeta: s.meta(""), Spec: batchv1.JobSpec{Template: s.template(once)}}
		for _, mod := range mods {
			mod(job)
		}
		s.create(job)
	}
}

func backoff(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Spec.BackoffLimit = &n } }

func perIndex(n int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = &n }
}

// work asks for completions, with so many pods at a time; zero completions means unset.
func work(completions, parallelism int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Parallelism = &parallelism
		if completions != 0 {
			j.Spec.Completions = &completions
		}
	}
}

func indexed(completions, parallelism int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		mode := batchv1.IndexedCompletion
		j.Spec.CompletionMode = &mode
		work(completions, parallelism)(j)
	}
}

// with changes the pods.
func with(mods ...podMod) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		for _, mod := range mods {
			mod(&j.Spec.Template.ObjectMeta, &j.Spec.Template.Spec)
		}
	}
}

func onFailure(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }

func afterFailure(j *batchv1.Job) {
	policy := batchv1.Failed
	j.Spec.PodReplacementPolicy = &policy
}

func policy(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
}

func onCondition(action batchv1.PodFailurePolicyAction, kind corev1.PodConditionType, status corev1.ConditionStatus) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: kind, Status: status}}}
}

func onDisruption(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return onCondition(action, corev1.DisruptionTarget, corev1.ConditionTrue)
}

// onTerm matches what a container reports that SIGTERM ends.
func onTerm(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
		Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{143},
	}}
}

// firstEnds lets one pod, of index 0 where there are indexes, end by itself with this code before the question is asked.
func firstEnds(code int) func(*site) {
	return func(s *site) {
		var first *corev1.Pod
		s.eventually("the first pod", func() bool {
			for _, p := range s.ledger.living(func(p *corev1.Pod) bool { return p.Labels[scenarioLabel] == s.scenario }) {
				if index := p.Labels[jobIndexLabel]; index == "" || index == "0" {
					first = p
				}
			}
			return first != nil
		})
		s.patch(podResource, first.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1s",%q:"%d"}}}`, exitsAfter, exitCode, code))
	}
}

// awaitStatus returns when the Job has counted so many pods as failed and succeeded, and another pod of it runs.
func awaitStatus(failed, succeeded int32) func(*site) {
	return func(s *site) {
		s.eventually("the Job to count", func() bool {
			job, err := s.client.BatchV1().Jobs(s.namespace).Get(s.Context(), s.scenario, metav1.GetOptions{})
			s.must(err)
			return job.Status.Failed == failed && job.Status.Succeeded == succeeded
		})
		s.mine("another pod", 1, running)
	}
}

// widen lets a Job start a second pod, on the node that stays.
func widen(s *site) { s.patch(jobResource, s.scenario, `{"spec":{"parallelism":2}}`) }

// patched changes the Job's spec and waits until n pods are Terminating for it.
func patched(spec string, n int) func(*site) {
	return func(s *site) {
		s.patch(jobResource, s.scenario, `{"spec":`+spec+`}`)
		s.mine("the Job to stop pods", n, terminating)
	}
}

var givesUp = lost(fate.JobWillNotRetry)

// jobScenarios are rules 8, 9, 13 and 15 for Jobs that count all pods together.
var jobScenarios = []scenario{
	{name: "job", make: jobOf(), pods: []expectation{returns(fate.Job)}},
	{name: "job-backoff-0", make: jobOf(backoff(0)), pods: []expectation{givesUp}},
	{name: "job-backoff-1", make: jobOf(backoff(1)), pods: []expectation{returns(fate.Job)}},
	{
		name: "job-backoff-1-failed-once", make: jobOf(backoff(1)), pend: firstEnds(1), shape: awaitStatus(1, 0),
		pods: []expectation{givesUp},
	},
	{
		name: "job-backoff-2-failed-once", make: jobOf(backoff(2)), pend: firstEnds(1), shape: awaitStatus(1, 0),
		pods: []expectation{returns(fate.Job)},
	},
	{name: "job-three-pods-backoff-2", make: jobOf(backoff(2), work(3, 3)), pods: []expectation{givesUp.times(3)}},
	{name: "job-three-pods-backoff-3", make: jobOf(backoff(3), work(3, 3)), pods: []expectation{returns(fate.Job).times(3)}},
	{
		name: "job-on-both-nodes-backoff-0", make: jobOf(backoff(0), work(2, 1)), partner: widen,
		pods: []expectation{givesUp, costs(fate.JobWillNotRetry)},
	},
	{
		name: "job-on-both-nodes-backoff-1", make: jobOf(backoff(1), work(2, 1)), partner: widen,
		pods: []expectation{returns(fate.Job), unharmed()},
	},
	{
		// The one that is stopping is counted when it has stopped, whether that is before the others or after.
		name: "job-another-stops-elsewhere", make: jobOf(backoff(1), work(2, 1), afterFailure, with(stopsAfter(time.Minute))),
		partner: func(s *site) {
			widen(s)
			s.mine("a pod on each node", 2, running)
			there := s.mine("the pod there", 1, func(p *corev1.Pod) bool { return p.Spec.NodeName == s.stays })[0]
			s.delete(podResource, there.Name, metav1.DeletePropagationBackground)
			s.mine("the deletion", 1, terminating)
		},
		pods: []expectation{givesUp, costs(fate.JobWillNotRetry)},
	},
	{name: "job-work-queue", make: jobOf(work(0, 2)), pods: []expectation{returns(fate.Job).times(2)}},
	{
		name: "job-half-done-backoff-0", make: jobOf(backoff(0), work(2, 2)), pend: firstEnds(0), shape: awaitStatus(0, 1),
		pods: []expectation{givesUp},
	},
	{
		name: "job-half-done-backoff-1", make: jobOf(backoff(1), work(2, 2)), pend: firstEnds(0), shape: awaitStatus(0, 1),
		pods: []expectation{returns(fate.Job)},
	},
	{
		name: "job-one-success-is-enough", make: jobOf(work(0, 2)), pend: firstEnds(0), shape: awaitStatus(0, 1),
		pods: []expectation{lost(fate.JobFinished)},
	},
	{
		name: "job-past-deadline", make: jobOf(with(slow)), shape: patched(`{"activeDeadlineSeconds":1}`, 1),
		pods: []expectation{lost(fate.JobFinished).flagged(fate.Terminating)},
	},
	{
		name: "job-with-deadline", make: jobOf(func(j *batchv1.Job) { hour := int64(3600); j.Spec.ActiveDeadlineSeconds = &hour }),
		pods: []expectation{returns(fate.Job)},
	},
	{
		name: "job-suspended", make: jobOf(with(slow)), shape: patched(`{"suspend":true}`, 1),
		pods: []expectation{lost(fate.JobSuspended)},
	},
	{
		name: "job-parallelism-0", make: jobOf(with(slow)), shape: patched(`{"parallelism":0}`, 1),
		pods: []expectation{lost(fate.OwnerScaledDown)},
	},
	{
		name: "job-index-cut-off", make: jobOf(indexed(2, 2), with(slow)), shape: patched(`{"completions":1,"parallelism":1}`, 1),
		pods: []expectation{returns(fate.Job).of("0"), lost(fate.OwnerScaledDown).of("1")},
	},
	{name: "job-onfailure-backoff-0", make: jobOf(backoff(0), onFailure), pods: []expectation{givesUp}},
	{name: "job-onfailure-backoff-1", make: jobOf(backoff(1), onFailure), pods: []expectation{returns(fate.Job)}},
	{
		// It ends with 0 when it is told to stop, and the Job waits for the end before it counts.
		name: "job-ends-well-on-sigterm", make: jobOf(backoff(0), afterFailure, with(annotated(exitCode, "0"))),
		pods: []expectation{givesUp.evictedTo(done, saysExitCode)},
	},
	{
		name: "job-already-replaced", make: jobOf(with(slow)), shape: jobPodDeleted(true),
		pods: []expectation{expect(fate.Returns, fate.AlreadyReplaced, notRecreated).of("deleted"), returns(fate.Job)},
	},
	{
		name: "job-replaces-after-the-end", make: jobOf(afterFailure, with(slow)), shape: jobPodDeleted(false),
		pods: []expectation{returns(fate.Job).flagged(fate.Terminating)},
	},
	{
		name: "job-with-finalizer", make: jobOf(with(finalized)),
		pods: []expectation{returns(fate.Job).flagged(fate.HasFinalizer)},
	},
	{
		name: "job-managed-by-another",
		make: func(s *site) {
			manager := "example.com/manager"
			job := s.create(&batchv1.Job{ObjectMeta: s.meta(""), Spec: batchv1.JobSpec{Template: s.template(once), ManagedBy: &manager}})
			s.create(s.pod("", once, ownedBy(job)))
		},
		pods: []expectation{returns(fate.CustomController).assumed().inFact(notRecreated)},
	},
}

// jobPodDeleted deletes the Job's pod, which takes its time; it may wait for the successor.
func jobPodDeleted(successor bool) func(*site) {
	return func(s *site) {
		old := s.mine("a pod", 1, running)[0]
		s.mark(old, "deleted")
		s.delete(podResource, old.Name, metav1.DeletePropagationBackground)
		s.mine("the deletion", 1, terminating)
		if successor {
			s.mine("its successor", 1, running)
		}
	}
}

// jobPolicyScenarios are the branches of podFailurePolicy.
var jobPolicyScenarios = []scenario{
	{
		name: "policy-ignore", make: jobOf(backoff(0), policy(onDisruption(batchv1.PodFailurePolicyActionIgnore))),
		pods: []expectation{returns(fate.Job)},
	},
	{
		name: "policy-failjob", make: jobOf(work(2, 1), policy(onDisruption(batchv1.PodFailurePolicyActionFailJob))), partner: widen,
		pods: []expectation{givesUp, costs(fate.JobWillNotRetry)},
	},
	{
		name: "policy-failindex",
		make: jobOf(indexed(2, 1), perIndex(3), policy(onDisruption(batchv1.PodFailurePolicyActionFailIndex))), partner: widen,
		pods: []expectation{givesUp, unharmed()},
	},
	{
		name: "policy-failindex-backoff-0", partner: widen,
		make: jobOf(indexed(2, 1), perIndex(3), backoff(0), policy(onDisruption(batchv1.PodFailurePolicyActionFailIndex))),
		pods: []expectation{givesUp, costs(fate.JobWillNotRetry)},
	},
	{
		name: "policy-count-backoff-0", make: jobOf(backoff(0), policy(onDisruption(batchv1.PodFailurePolicyActionCount))),
		pods: []expectation{givesUp},
	},
	{
		name: "policy-count-backoff-1", make: jobOf(backoff(1), policy(onDisruption(batchv1.PodFailurePolicyActionCount))),
		pods: []expectation{returns(fate.Job)},
	},
	{
		name: "policy-first-rule-decides",
		make: jobOf(backoff(0), policy(onDisruption(batchv1.PodFailurePolicyActionCount), onDisruption(batchv1.PodFailurePolicyActionIgnore))),
		pods: []expectation{givesUp},
	},
	{
		name: "policy-of-another-status",
		make: jobOf(backoff(0), policy(onCondition(batchv1.PodFailurePolicyActionIgnore, corev1.DisruptionTarget, corev1.ConditionFalse))),
		pods: []expectation{givesUp},
	},
	{
		name: "policy-exit-code-first",
		make: jobOf(policy(onTerm(batchv1.PodFailurePolicyActionFailJob), onDisruption(batchv1.PodFailurePolicyActionIgnore))),
		pods: []expectation{returns(fate.Job).assumed().evictedTo(notRecreated, saysPolicy)},
	},
	{
		name: "policy-exit-code-only", make: jobOf(backoff(0), policy(onTerm(batchv1.PodFailurePolicyActionIgnore))),
		pods: []expectation{givesUp.assumed().evictedTo(recreated, saysPolicy)},
	},
	{
		name: "policy-not-ready",
		make: jobOf(policy(onCondition(batchv1.PodFailurePolicyActionFailJob, corev1.PodReady, corev1.ConditionFalse))),
		pods: []expectation{returns(fate.Job).assumed().evictedTo(notRecreated, saysPolicy)},
	},
}

// jobIndexScenarios are Jobs whose indexes stand or fall one by one.
var jobIndexScenarios = []scenario{
	{
		name: "indexed-backoff-0", make: jobOf(indexed(2, 1), backoff(0)), partner: widen,
		pods: []expectation{givesUp, costs(fate.JobWillNotRetry)},
	},
	{
		name: "per-index-0", make: jobOf(indexed(2, 1), perIndex(0)), partner: widen,
		pods: []expectation{givesUp, unharmed()},
	},
	{
		name: "per-index-0-no-failed-index", make: jobOf(indexed(2, 1), perIndex(0), atMostFailed(0)), partner: widen,
		pods: []expectation{givesUp, costs(fate.JobWillNotRetry)},
	},
	{
		name: "per-index-0-second-failed-index", make: jobOf(indexed(3, 1), perIndex(0), atMostFailed(1)), pend: firstEnds(1),
		shape: awaitStatus(1, 0), partner: widen,
		pods: []expectation{givesUp, costs(fate.JobWillNotRetry)},
	},
	{
		name: "per-index-0-failed-indexes-left", make: jobOf(indexed(3, 1), perIndex(0), atMostFailed(2)), pend: firstEnds(1),
		shape: awaitStatus(1, 0), partner: widen,
		pods: []expectation{givesUp, unharmed()},
	},
	{name: "per-index-1", make: jobOf(indexed(1, 1), perIndex(1)), pods: []expectation{returns(fate.Job)}},
	{
		name: "per-index-1-failed-once", make: jobOf(indexed(2, 1), perIndex(1)), pend: firstEnds(1), shape: perIndexFailedOnce,
		pods: []expectation{givesUp},
	},
	{
		name: "per-index-0-ignore", make: jobOf(indexed(1, 1), perIndex(0), policy(onDisruption(batchv1.PodFailurePolicyActionIgnore))),
		pods: []expectation{returns(fate.Job)},
	},
	{name: "per-index-1-backoff-0", make: jobOf(indexed(1, 1), perIndex(1), backoff(0)), pods: []expectation{givesUp}},
	{
		name: "success-policy-open", make: jobOf(indexed(2, 2), backoff(0), successOf("0")),
		pods: []expectation{givesUp.of("0"), givesUp.of("1")},
	},
	{
		name: "success-policy-met", make: jobOf(indexed(2, 2), with(slow), successOf("0")), pend: firstEnds(0),
		shape: func(s *site) { s.mine("the Job to stop the other index", 1, terminating) },
		pods:  []expectation{lost(fate.JobFinished).of("1")},
	},
}

func atMostFailed(indexes int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = &indexes }
}

func successOf(indexes string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: &indexes}}}
	}
}

// perIndexFailedOnce returns when index 0 runs again, with one failure to its name.
func perIndexFailedOnce(s *site) {
	s.mine("index 0 again", 1, func(p *corev1.Pod) bool {
		return running(p) && p.Annotations[batchv1.JobIndexFailureCountAnnotation] == "1"
	})
}
