package fate

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The Job rules follow k8s.io/kubernetes/pkg/controller/job/job_controller.go; what happens on a real control plane is in
// facts/fate-truth.md C1 to C3, C11 and the table of Jobs in its section 3.

// evictedJob is how an eviction in time may end for a Job's pod (facts/fate-truth.md C6).
const evictedJob = "evicted in time, a container that ends with exit code 0 counts as done"

// ofJob is rules 8, 9, 13 and 15 for a Job.
func (r *Roll) ofJob(pod *corev1.Pod, owner metav1.Object) ruling {
	job, read := owner.(*batchv1.Job)
	if !read {
		return returns(Job, nil, "Its Job makes it again")
	}
	facts := r.snap.job(job)
	index, indexed := facts.index(pod)
	switch { // 8
	case job.Spec.Parallelism != nil && *job.Spec.Parallelism == 0:
		return certain(Lost, OwnerScaledDown, "Its Job "+job.Name+" has parallelism 0 and makes nothing again")
	case indexed && facts.beyond(index):
		return certain(Lost, OwnerScaledDown, "Its Job "+job.Name+" has no index "+number(index)+" any more")
	}
	if facts.ended != nil { // 9, before any failure is counted
		return *facts.ended
	}
	if o := r.outcome(facts); o.why != "" { // 9, for every pod of the Job
		return facts.willNotRetry(o.why)
	}
	if indexed && facts.failsIndex(pod) { // 9, for this index
		return facts.willNotRetry("index " + number(index) + " fails with this pod")
	}
	if pod.DeletionTimestamp != nil && facts.replaced(pod) { // 13
		return certain(Returns, AlreadyReplaced, "It is Terminating, and its Job "+job.Name+
			" already has the pods that it wants: nothing more is to come")
	}
	again := certain(Returns, Job, "Its Job "+job.Name+" makes it again") // 15
	again.evicted = evictedJob
	return facts.qualified(again)
}

// willNotRetry is the verdict for a pod that its Job gives up, and why it does.
func (f *jobFacts) willNotRetry(why string) ruling {
	lost := certain(Lost, JobWillNotRetry, "Its Job "+f.job.Name+" does not try again: "+why+"")
	lost.evicted = evictedJob
	return f.qualified(lost)
}

// qualified adds the assumption that podFailurePolicy asks for.
func (f *jobFacts) qualified(r ruling) ruling {
	if f.policy.assumed {
		r.assumed = true
		r.evicted = "its podFailurePolicy has a rule that an eviction with an exit code or another condition may match first"
	}
	return r
}

// over is the part of rule 9 that does not depend on which nodes go.
func (f *jobFacts) over(now time.Time) (ruling, bool) {
	job := f.job
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget:
			return certain(Lost, JobFinished, "Its Job "+job.Name+" has ended ("+string(c.Type)+") and makes nothing again"), true
		}
	}
	switch {
	case job.Spec.Completions != nil && f.succeeded >= int64(*job.Spec.Completions):
		return certain(Lost, JobFinished, "Its Job "+job.Name+" has its "+number(f.succeeded)+" completions and makes nothing again"), true
	case job.Spec.Completions == nil && f.succeeded > 0:
		return certain(Lost, JobFinished, "A pod of its Job "+job.Name+
			" has succeeded; without completions that ends the work, and the Job makes nothing again"), true
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		return certain(Lost, JobSuspended, "Its Job "+job.Name+" is suspended; it is not made again before somebody resumes the Job"), true
	case job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName:
		return assumed(Returns, CustomController, "Its Job "+job.Name+" is managed by "+*job.Spec.ManagedBy+
			", which is taken to make it again (assumed)"), true
	case job.Spec.ActiveDeadlineSeconds != nil && job.Status.StartTime != nil &&
		now.Unix()-job.Status.StartTime.Unix() >= *job.Spec.ActiveDeadlineSeconds:
		return certain(Lost, JobWillNotRetry, "Its Job "+job.Name+" is past its activeDeadlineSeconds and does not try again"), true
	}
	return ruling{}, false
}

// fails says why the whole Job fails with these failures; empty where it does not.
func (f *jobFacts) fails(t failures) string {
	failed := f.failed + t.counted
	switch limit, limited := f.backoffLimit(); {
	case t.failJob > 0:
		return "its podFailurePolicy fails the whole Job on DisruptionTarget"
	case limited && failed > limit:
		return "that brings its failures to " + number(failed) + " with a backoffLimit of " + number(limit) +
			" (raise it, or ignore DisruptionTarget in podFailurePolicy)"
	}
	spec := &f.job.Spec
	if spec.BackoffLimitPerIndex != nil && spec.MaxFailedIndexes != nil {
		if indexes := f.failedIndexes.total() + int64(len(t.indexes)); indexes > int64(*spec.MaxFailedIndexes) {
			return "that brings the failed indexes to " + number(indexes) + " with maxFailedIndexes " + number(int64(*spec.MaxFailedIndexes))
		}
	}
	return ""
}

// backoffLimit returns the limit for the whole Job: 6 where none is set, and none beside backoffLimitPerIndex (defaults
// in k8s.io/kubernetes/pkg/apis/batch/v1; there the missing limit is the largest int32).
func (f *jobFacts) backoffLimit() (int64, bool) {
	switch spec := &f.job.Spec; {
	case spec.BackoffLimit != nil:
		return int64(*spec.BackoffLimit), true
	case spec.BackoffLimitPerIndex != nil:
		return 0, false
	}
	return 6, true
}

// failsIndex says whether the pod's end on a going node fails its index for good, or the index has failed already.
func (f *jobFacts) failsIndex(pod *corev1.Pod) bool {
	if f.job.Spec.BackoffLimitPerIndex == nil {
		return false
	}
	index, _ := f.index(pod)
	return f.failedIndexes.has(index) || f.endsIndex(pod, f.policy.action)
}

// replaced says whether the Job has nothing more to make for a Terminating pod: its index is done or runs in another pod,
// or there are as many other pods as the Job wants.
func (f *jobFacts) replaced(pod *corev1.Pod) bool {
	if index, indexed := f.index(pod); indexed {
		return f.completedIndexes.has(index) || f.activeIndexes[index]
	}
	wanted := int64(1)
	if f.job.Spec.Parallelism != nil {
		wanted = int64(*f.job.Spec.Parallelism)
	}
	if f.job.Spec.Completions != nil {
		wanted = min(wanted, int64(*f.job.Spec.Completions)-f.succeeded)
	}
	return int64(f.active) >= wanted
}
