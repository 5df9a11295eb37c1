package fate

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type jobMod = func(*batchv1.Job)

func backoff(n int32) jobMod { return func(j *batchv1.Job) { j.Spec.BackoffLimit = &n } }

func size(completions, parallelism int32) jobMod {
	return func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = &completions, &parallelism }
}

func workQueue(j *batchv1.Job) { j.Spec.Completions = nil }

func indexedJob(j *batchv1.Job) { j.Spec.CompletionMode = ptr(batchv1.IndexedCompletion) }

func perIndex(n int32) jobMod {
	return func(j *batchv1.Job) { indexedJob(j); j.Spec.BackoffLimitPerIndex = &n }
}

func maxFailed(n int32) jobMod { return func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = &n } }

func failed(n int32) jobMod { return func(j *batchv1.Job) { j.Status.Failed = n } }

func succeeded(n int32) jobMod { return func(j *batchv1.Job) { j.Status.Succeeded = n } }

func uncounted(failed ...types.UID) jobMod {
	return func(j *batchv1.Job) {
		j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: failed}
	}
}

func jobCondition(c batchv1.JobConditionType, status corev1.ConditionStatus) jobMod {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: status})
	}
}

func started(ago time.Duration, deadline int64) jobMod {
	return func(j *batchv1.Job) {
		j.Spec.ActiveDeadlineSeconds = &deadline
		j.Status.StartTime = &metav1.Time{Time: now.Add(-ago)}
	}
}

func managed(by string) jobMod { return func(j *batchv1.Job) { j.Spec.ManagedBy = &by } }

func suspended(j *batchv1.Job) { j.Spec.Suspend = ptr(true) }

func policy(rules ...batchv1.PodFailurePolicyRule) jobMod {
	return func(j *batchv1.Job) { j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
}

func onCondition(action batchv1.PodFailurePolicyAction, c corev1.PodConditionType, status corev1.ConditionStatus) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: c, Status: status}}}
}

func onDisruptionTarget(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return onCondition(action, corev1.DisruptionTarget, corev1.ConditionTrue)
}

func exitRule(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
		Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{143}}}
}

func failureCount(n int) func(*corev1.Pod) {
	return annotated(batchv1.JobIndexFailureCountAnnotation, fmt.Sprint(n))
}

func exited(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
	}
}

func evicted(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
}

var (
	ignore    = batchv1.PodFailurePolicyActionIgnore
	failJob   = batchv1.PodFailurePolicyActionFailJob
	failIndex = batchv1.PodFailurePolicyActionFailIndex
	count     = batchv1.PodFailurePolicyActionCount

	again     = want{verdict: Returns, reason: Job}
	gone      = want{verdict: Lost, reason: JobWillNotRetry}
	ended     = want{verdict: Lost, reason: JobFinished}
	held      = want{verdict: Lost, reason: JobSuspended}
	scaled    = want{verdict: Lost, reason: OwnerScaledDown}
	replaced  = want{verdict: Returns, reason: AlreadyReplaced}
	elsewhere = want{Returns, CustomController, Assumed}
)

func (w want) butAssumed() want { w.certainty = Assumed; return w }

// jobRow is one row of a table of Jobs: the Job j, its pod a-0 on n1, which goes as n9 does, its other pods, and the answer
// for a-0.
type jobRow struct {
	name string
	job  []jobMod
	pod  []func(*corev1.Pod)
	more []*corev1.Pod
	want want
}

func runJobs(t *testing.T, rows []jobRow) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			objects := []any{job("j", tt.job...), job("k"), pod("a-0", "n1", append(tt.pod, by("batch/Job j"))...)}
			for _, p := range tt.more {
				objects = append(objects, p)
			}
			c := newCluster(objects...)
			check(t, fateOf(t, ask(c, "n1", "n9"), "n1", "a-0"), tt.want)
			check(t, fateOf(t, ask(c, "n9").With(Departure{Node: "n1"}), "n1", "a-0"), tt.want)
		})
	}
}

// more makes n further pods of the Job on a node.
func more(n int, node string, mods ...func(*corev1.Pod)) (all []*corev1.Pod) {
	for i := range n {
		all = append(all, pod(fmt.Sprintf("b-%s%d", node, i), node, append(mods, by("batch/Job j"))...))
	}
	return all
}

// The tables below have a row for each Job branch of DESIGN.md section 3 and each Job of facts/fate-truth.md section 3.

func TestJobEnds(t *testing.T) {
	runJobs(t, []jobRow{
		{"finished: Complete", []jobMod{jobCondition(batchv1.JobComplete, "True")}, nil, nil, ended},
		{"finished: Failed", []jobMod{jobCondition(batchv1.JobFailed, "True")}, nil, nil, ended},
		{"finished: SuccessCriteriaMet", []jobMod{jobCondition(batchv1.JobSuccessCriteriaMet, "True")}, nil, nil, ended},
		{"finished: FailureTarget", []jobMod{jobCondition(batchv1.JobFailureTarget, "True")}, nil, nil, ended},
		{"a condition that is False", []jobMod{jobCondition(batchv1.JobFailed, "False")}, nil, nil, again},
		{"a condition that ends nothing", []jobMod{jobCondition(batchv1.JobSuspended, "True")}, nil, nil, again},
		{"completions reached", []jobMod{size(2, 1), succeeded(2)}, nil, nil, ended},
		{"completions not reached", []jobMod{size(2, 1), succeeded(1)}, nil, nil, again},
		{"completions reached by a pod not counted yet", []jobMod{size(2, 2), succeeded(1)}, nil,
			more(1, "n2", tracked, phase(corev1.PodSucceeded)), ended},
		{"a success that is counted already", []jobMod{size(2, 2), succeeded(1)}, nil, more(1, "n2", phase(corev1.PodSucceeded)), again},
		{"work queue with a success", []jobMod{workQueue, succeeded(1)}, nil, nil, ended},
		{"work queue without", []jobMod{workQueue}, nil, nil, again},
		{"suspended", []jobMod{suspended}, nil, nil, held},
		{"finished before suspended", []jobMod{suspended, jobCondition(batchv1.JobFailed, "True")}, nil, nil, ended},
		{"suspended before managedBy", []jobMod{suspended, managed("example.com/x")}, nil, nil, held},
		{"managedBy another, before its limits", []jobMod{managed("example.com/x"), backoff(0)}, nil, nil, elsewhere},
		{"managedBy the Job controller", []jobMod{managed(batchv1.JobControllerName), backoff(0)}, nil, nil, gone},
		{"deadline over", []jobMod{started(time.Hour, 3600)}, nil, nil, gone},
		{"deadline ahead", []jobMod{started(time.Hour, 3601)}, nil, nil, again},
		{"parallelism 0", []jobMod{size(2, 0)}, nil, nil, scaled},
		{"parallelism 0 before finished", []jobMod{size(2, 0), jobCondition(batchv1.JobFailed, "True")}, nil, nil, scaled},
		{"index beyond completions", []jobMod{size(3, 3), indexedJob}, []func(*corev1.Pod){index(3)}, nil, scaled},
		{"last index", []jobMod{size(3, 3), indexedJob}, []func(*corev1.Pod){index(2)}, nil, again},
		{"an index without Indexed", []jobMod{size(3, 3)}, []func(*corev1.Pod){index(3)}, nil, again},
	})
}

func TestJobBackoffLimit(t *testing.T) {
	runJobs(t, []jobRow{
		{"backoffLimit 0", []jobMod{backoff(0)}, nil, nil, gone},
		{"backoffLimit 1, none failed", []jobMod{backoff(1)}, nil, nil, again},
		{"backoffLimit 1, one failed", []jobMod{backoff(1), failed(1)}, nil, nil, gone},
		{"default of 6, five failed", []jobMod{failed(5)}, nil, nil, again},
		{"default of 6, six failed", []jobMod{failed(6)}, nil, nil, gone},
		{"uncounted failures", []jobMod{backoff(1), uncounted("x")}, nil, nil, gone},
		{"three pods on the node, limit 2", []jobMod{size(3, 3), backoff(2)}, nil, more(2, "n1"), gone},
		{"three pods on the node, limit 3", []jobMod{size(3, 3), backoff(3)}, nil, more(2, "n1"), again},
		{"pods on a node that stays", []jobMod{size(3, 3), backoff(1)}, nil, more(2, "n2"), again},
		{"pods on another going node", []jobMod{size(3, 3), backoff(2)}, nil, more(2, "n9"), gone},
		{"finished pods on the node", []jobMod{size(3, 3), backoff(1)}, nil, more(2, "n1", phase(corev1.PodSucceeded)), again},
		{"Terminating elsewhere, not counted yet", []jobMod{size(3, 3), backoff(1)}, nil, more(1, "n2", tracked, terminating), gone},
		{"Terminating elsewhere, counted", []jobMod{size(3, 3), backoff(1)}, nil, more(1, "n2", terminating), again},
		{"failed elsewhere, not counted yet", []jobMod{size(3, 3), backoff(1)}, nil, more(1, "n2", tracked, phase(corev1.PodFailed)), gone},
		{"failed on the node, not counted yet", []jobMod{size(3, 3), backoff(1)}, nil, more(1, "n1", tracked, phase(corev1.PodFailed)), gone},
		{"failed elsewhere, in uncounted: once", []jobMod{size(3, 3), backoff(2), uncounted("uid-b-n20")}, nil,
			more(1, "n2", tracked, phase(corev1.PodFailed)), again},
		{"Terminating on the node, counted in the status", []jobMod{size(2, 2), backoff(2), failed(1)}, nil, more(1, "n1", terminating), again},
		{"another Job's pod", []jobMod{backoff(1)}, nil, []*corev1.Pod{pod("c", "n1", by("batch/Job k"))}, again},
		{"only owned, not controlled", []jobMod{backoff(1)}, nil, []*corev1.Pod{pod("c", "n1", beside("batch/Job j"))}, again},
		{"index beyond completions does not count", []jobMod{size(2, 2), backoff(1), indexedJob}, []func(*corev1.Pod){index(0)},
			more(1, "n1", index(5)), again},
	})
}

func TestJobFailurePolicy(t *testing.T) {
	runJobs(t, []jobRow{
		{"Ignore", []jobMod{backoff(0), policy(onDisruptionTarget(ignore))}, nil, nil, again},
		{"Ignore for status False", []jobMod{backoff(0), policy(onCondition(ignore, corev1.DisruptionTarget, "False"))}, nil, nil, gone},
		{"no status in the rule means True", []jobMod{backoff(0), policy(onCondition(ignore, corev1.DisruptionTarget, ""))}, nil, nil, again},
		{"no status in the rule, a failure elsewhere", []jobMod{size(3, 3), backoff(0), policy(onCondition(ignore, corev1.DisruptionTarget, ""))}, nil,
			more(1, "n2", tracked, phase(corev1.PodFailed), evicted), again},
		{"FailJob", []jobMod{policy(onDisruptionTarget(failJob))}, nil, nil, gone},
		{"Count, limit 0", []jobMod{backoff(0), policy(onDisruptionTarget(count))}, nil, nil, gone},
		{"Count, limit 1", []jobMod{backoff(1), policy(onDisruptionTarget(count))}, nil, nil, again},
		{"the first rule wins", []jobMod{backoff(0), policy(onDisruptionTarget(count), onDisruptionTarget(ignore))}, nil, nil, gone},
		{"exit codes before", []jobMod{backoff(0), policy(exitRule(failJob), onDisruptionTarget(ignore))}, nil, nil, again.butAssumed()},
		{"exit codes after", []jobMod{backoff(0), policy(onDisruptionTarget(ignore), exitRule(failJob))}, nil, nil, again},
		{"exit codes alone, limit 0", []jobMod{backoff(0), policy(exitRule(ignore))}, nil, nil, gone.butAssumed()},
		{"exit codes alone, limit 1", []jobMod{backoff(1), policy(exitRule(ignore))}, nil, nil, again.butAssumed()},
		{"another condition before", []jobMod{policy(onCondition(failJob, corev1.PodReady, "False"), onDisruptionTarget(ignore))}, nil, nil,
			again.butAssumed()},
		{"another condition alone", []jobMod{backoff(0), policy(onCondition(ignore, "ConfigIssue", "True"))}, nil, nil, gone.butAssumed()},
		{"Ignore of a failure elsewhere by its own status", []jobMod{size(3, 3), backoff(0), policy(onDisruptionTarget(ignore))}, nil,
			more(1, "n2", tracked, phase(corev1.PodFailed), evicted), again},
		{"count of a failure elsewhere by its own status", []jobMod{size(3, 3), backoff(0), policy(onDisruptionTarget(ignore))}, nil,
			more(1, "n2", tracked, phase(corev1.PodFailed), exited(1)), gone},
		{"exit code of a failure elsewhere", []jobMod{size(3, 3), backoff(0), policy(onDisruptionTarget(ignore), exitRule(ignore))}, nil,
			more(1, "n2", tracked, phase(corev1.PodFailed), exited(143)), again},
		{"Terminating on the node counts as disrupted", []jobMod{backoff(0), policy(onDisruptionTarget(ignore))},
			[]func(*corev1.Pod){tracked, terminating}, nil, again},
	})
}

func TestJobIndexes(t *testing.T) {
	runJobs(t, []jobRow{
		{"FailIndex", []jobMod{size(4, 4), perIndex(3), policy(onDisruptionTarget(failIndex))}, []func(*corev1.Pod){index(1)}, nil, gone},
		{"FailIndex of another index", []jobMod{size(4, 4), perIndex(3), policy(onDisruptionTarget(failIndex))},
			[]func(*corev1.Pod){index(1)}, more(1, "n2", index(2)), gone},
		{"FailIndex counts where backoffLimit is set", []jobMod{size(4, 4), perIndex(3), backoff(1), policy(onDisruptionTarget(failIndex))},
			[]func(*corev1.Pod){index(1)}, more(1, "n1", index(2)), gone},
		{"per index 0", []jobMod{size(4, 4), perIndex(0)}, []func(*corev1.Pod){index(1)}, nil, gone},
		{"per index 1, none before", []jobMod{size(4, 4), perIndex(1)}, []func(*corev1.Pod){index(1), failureCount(0)}, nil, again},
		{"per index 1, one before", []jobMod{size(4, 4), perIndex(1)}, []func(*corev1.Pod){index(1), failureCount(1)}, nil, gone},
		{"an index that failed before", []jobMod{size(4, 4), perIndex(3), func(j *batchv1.Job) { j.Status.FailedIndexes = ptr("0-1") }},
			[]func(*corev1.Pod){index(1)}, nil, gone},
		{"per index 0 and Ignore", []jobMod{size(4, 4), perIndex(0), policy(onDisruptionTarget(ignore))}, []func(*corev1.Pod){index(1)}, nil, again},
		{"per index: no default backoffLimit", []jobMod{size(9, 9), perIndex(1), failed(8)}, []func(*corev1.Pod){index(1)}, nil, again},
		{"per index with backoffLimit 0", []jobMod{size(4, 4), perIndex(1), backoff(0)}, []func(*corev1.Pod){index(1)}, nil, gone},
		{"maxFailedIndexes reached by others", []jobMod{size(4, 4), perIndex(1), maxFailed(0)}, []func(*corev1.Pod){index(1)},
			more(1, "n1", index(2), failureCount(1)), gone},
		{"maxFailedIndexes not passed", []jobMod{size(4, 4), perIndex(1), maxFailed(1)}, []func(*corev1.Pod){index(1)},
			more(1, "n1", index(2), failureCount(1)), again},
		{"maxFailedIndexes with those failed before", []jobMod{size(9, 9), perIndex(1), maxFailed(3), func(j *batchv1.Job) {
			j.Status.FailedIndexes = ptr("3,5-6")
		}}, []func(*corev1.Pod){index(1)}, more(1, "n1", index(2), failureCount(1)), gone},
		{"an index that failed before counts once", []jobMod{size(9, 9), perIndex(1), maxFailed(3), func(j *batchv1.Job) {
			j.Status.FailedIndexes = ptr("2,5-6")
		}}, []func(*corev1.Pod){index(1)}, more(1, "n1", index(2), failureCount(1)), again},
	})
}

func TestJobReplaced(t *testing.T) {
	runJobs(t, []jobRow{
		{"Terminating, replaced", []jobMod{}, []func(*corev1.Pod){terminating}, more(1, "n2"), replaced},
		{"Terminating, not yet", []jobMod{size(2, 2)}, []func(*corev1.Pod){terminating}, more(1, "n2"), again},
		{"Terminating, the rest is nearly done", []jobMod{size(9, 4), succeeded(8)}, []func(*corev1.Pod){terminating}, more(1, "n2"), replaced},
		{"Terminating, its index runs", []jobMod{size(4, 4), indexedJob}, []func(*corev1.Pod){terminating, index(1)}, more(1, "n2", index(1)), replaced},
		{"Terminating, another index runs", []jobMod{size(4, 1), indexedJob}, []func(*corev1.Pod){terminating, index(1)}, more(1, "n2", index(2)), again},
		{"a foreign finalizer holds no Job", nil, []func(*corev1.Pod){finalizer("x/y")}, nil, again},
		{"successPolicy not met", []jobMod{size(2, 2), indexedJob, backoff(0)}, []func(*corev1.Pod){index(0)}, nil, gone},
	})
}
