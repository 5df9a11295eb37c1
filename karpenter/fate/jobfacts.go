package fate

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// jobFacts is what a Job's status and its pods say, read once per World, whichever nodes go.
type jobFacts struct {
	job    *batchv1.Job
	policy onDisruption
	// ended is what rule 9 says before any failure is counted; nil where it says nothing.
	ended *ruling
	// succeeded and failed are what the Job controller has counted, or will count without any node going.
	succeeded, failed int64
	// nodes says what the pods of each node add to the failures when it goes and when it stays.
	nodes map[string]*nodeFailures
	// active counts the pods that are neither finished nor Terminating.
	active                          int
	activeIndexes                   map[int64]bool
	completedIndexes, failedIndexes intervals
}

// failures is how many failed pods count against the Job's limits.
type failures struct {
	counted int64
	// failJob counts the pods of which podFailurePolicy says FailJob.
	failJob int64
	// indexes are those that fail for good, each once, and are not in status.failedIndexes.
	indexes []int64
}

type nodeFailures struct{ goes, stays failures }

func (t *failures) empty() bool { return t.counted == 0 && t.failJob == 0 }

func (t *failures) add(o *failures) {
	t.counted += o.counted
	t.failJob += o.failJob
	for _, index := range o.indexes {
		t.addIndex(index)
	}
}

func (t *failures) addIndex(index int64) {
	if at, known := slices.BinarySearch(t.indexes, index); !known {
		t.indexes = slices.Insert(t.indexes, at, index)
	}
}

// outcome is what a Roll's going nodes mean for one Job.
type outcome struct {
	failures
	// why the whole Job fails; empty where it does not.
	why string
	// by are the going nodes whose pods add to the failures, sorted; they cost the Job's other pods where it fails.
	by []string
}

// outcome sums the failures of a Job for this Roll's going nodes. With one node more than the parent, only that node is
// looked at, except where indexes fail one by one: those sets cannot be subtracted.
func (r *Roll) outcome(f *jobFacts) *outcome {
	if o, known := r.outcomes[f]; known {
		return o
	}
	o := &outcome{}
	if r.parent != nil && f.job.Spec.BackoffLimitPerIndex == nil {
		*o = *r.parent.outcome(f)
		if n := f.nodes[r.extra.Node]; n != nil {
			o.counted += n.goes.counted - n.stays.counted
			o.failJob += n.goes.failJob - n.stays.failJob
			if !n.goes.empty() {
				o.by = append(slices.Clone(o.by), r.extra.Node)
			}
		}
	} else {
		for node, n := range f.nodes {
			if !r.goes(node) {
				o.add(&n.stays)
				continue
			}
			o.add(&n.goes)
			if !n.goes.empty() {
				o.by = append(o.by, node)
			}
		}
	}
	slices.Sort(o.by)
	o.why = f.fails(o.failures)
	if r.outcomes == nil {
		r.outcomes = map[*jobFacts]*outcome{}
	}
	r.outcomes[f] = o
	return o
}

// costs returns the going nodes whose pods fail the Job, sorted by name; none where the Job does not fail as a whole.
func (r *Roll) costs(f *jobFacts) []string {
	if f.ended != nil || f.job.DeletionTimestamp != nil {
		return nil
	}
	if o := r.outcome(f); o.why != "" {
		return o.by
	}
	return nil
}

// job reads a Job's pods once per World.
func (s *snapshot) job(job *batchv1.Job) *jobFacts {
	key := keyOf(job)
	if f, known := s.jobs[key]; known {
		return f
	}
	f := &jobFacts{
		job:           job,
		policy:        disruptionPolicy(job.Spec.PodFailurePolicy),
		succeeded:     int64(job.Status.Succeeded),
		failed:        int64(job.Status.Failed),
		nodes:         map[string]*nodeFailures{},
		activeIndexes: map[int64]bool{},
	}
	f.completedIndexes = parseIntervals(job.Status.CompletedIndexes)
	if job.Status.FailedIndexes != nil {
		f.failedIndexes = parseIntervals(*job.Status.FailedIndexes)
	}
	uncounted := map[types.UID]bool{}
	if u := job.Status.UncountedTerminatedPods; u != nil {
		f.succeeded += int64(len(u.Succeeded))
		f.failed += int64(len(u.Failed))
		for _, uid := range slices.Concat(u.Succeeded, u.Failed) {
			uncounted[uid] = true
		}
	}
	for _, pod := range s.PodsOwnedBy(job.Namespace, job.UID) {
		if controlledBy(pod, "Job", job) && !uncounted[pod.UID] {
			f.read(pod)
		}
	}
	if ended, yes := f.over(s.options.Now); yes {
		f.ended = &ended
	}
	s.jobs[key] = f
	return f
}

// read adds one pod of the Job that status.uncountedTerminatedPods does not hold. A finished or Terminating pod without
// the Job's finalizer is in the status already.
func (f *jobFacts) read(pod *corev1.Pod) {
	index, indexed := f.index(pod)
	if indexed && f.beyond(index) {
		return // the Job controller counts none of them (getValidPodsWithFilter)
	}
	tracked := slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		if !tracked || indexed && f.completedIndexes.has(index) {
			return
		}
		f.succeeded++
		if indexed {
			f.completedIndexes = append(f.completedIndexes, interval{index, index})
		}
	case pod.Status.Phase == corev1.PodFailed:
		if tracked {
			// It counts whether its node goes or stays. It is noted under its node all the same: where that node goes, it is
			// still among those that cost the Job's other pods, as it was a moment ago when this pod ran.
			n, action := f.on(pod.Spec.NodeName), matchPolicy(f.job.Spec.PodFailurePolicy, &pod.Status)
			f.fail(&n.goes, pod, action)
			f.fail(&n.stays, pod, action)
		}
	case pod.DeletionTimestamp != nil:
		if tracked {
			n := f.on(pod.Spec.NodeName)
			f.fail(&n.goes, pod, f.policy.action)
			f.fail(&n.stays, pod, matchPolicy(f.job.Spec.PodFailurePolicy, &pod.Status))
		}
	default:
		f.active++
		if indexed {
			f.activeIndexes[index] = true
		}
		f.fail(&f.on(pod.Spec.NodeName).goes, pod, f.policy.action)
	}
}

func (f *jobFacts) on(node string) *nodeFailures {
	n := f.nodes[node]
	if n == nil {
		n = &nodeFailures{}
		f.nodes[node] = n
	}
	return n
}

// fail adds the failure of one pod.
func (f *jobFacts) fail(t *failures, pod *corev1.Pod, action batchv1.PodFailurePolicyAction) {
	if action == batchv1.PodFailurePolicyActionIgnore {
		return
	}
	t.counted++
	if action == batchv1.PodFailurePolicyActionFailJob {
		t.failJob++
	}
	if index, indexed := f.index(pod); indexed && f.endsIndex(pod, action) && !f.failedIndexes.has(index) {
		t.addIndex(index)
	}
}

// endsIndex says whether one more failure of this pod, with that action, fails its index (indexed_job_utils.go
// isIndexFailed).
func (f *jobFacts) endsIndex(pod *corev1.Pod, action batchv1.PodFailurePolicyAction) bool {
	switch limit := f.job.Spec.BackoffLimitPerIndex; {
	case limit == nil || action == batchv1.PodFailurePolicyActionIgnore:
		return false
	case action == batchv1.PodFailurePolicyActionFailIndex:
		return true
	default:
		before, _ := strconv.ParseInt(pod.Annotations[batchv1.JobIndexFailureCountAnnotation], 10, 32)
		return before+1 > int64(*limit)
	}
}

// index returns the pod's completion index, if the Job is Indexed and the pod has one.
func (f *jobFacts) index(pod *corev1.Pod) (int64, bool) {
	if f.job.Spec.CompletionMode == nil || *f.job.Spec.CompletionMode != batchv1.IndexedCompletion {
		return 0, false
	}
	index, err := strconv.ParseUint(pod.Annotations[batchv1.JobCompletionIndexAnnotation], 10, 31)
	return int64(index), err == nil
}

// beyond says whether the Job has fewer indexes than this one needs.
func (f *jobFacts) beyond(index int64) bool {
	return f.job.Spec.Completions != nil && index >= int64(*f.job.Spec.Completions)
}

// intervals are the indexes of a Job's status, as "1,3-5" spells them.
type intervals []interval

type interval struct{ first, last int64 }

// parseIntervals leaves out what it cannot read, as the Job controller does.
func parseIntervals(s string) intervals {
	var all intervals
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 31)
		last, err2 := strconv.ParseUint(to, 10, 31)
		if err1 == nil && err2 == nil && first <= last {
			all = append(all, interval{int64(first), int64(last)})
		}
	}
	return all
}

func (all intervals) has(index int64) bool {
	for _, i := range all {
		if i.first <= index && index <= i.last {
			return true
		}
	}
	return false
}

func (all intervals) total() int64 {
	var n int64
	for _, i := range all {
		n += i.last - i.first + 1
	}
	return n
}
