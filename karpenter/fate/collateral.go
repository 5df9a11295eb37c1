package fate

import (
	"cmp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Losses reach nodes that stay (facts/fate-truth.md C4 and C5): a Job that fails has its other pods deleted, and the
// garbage collector deletes the pods whose owner pods are gone.

// doom says whether a pod's object dies, and which going nodes cost it.
type doom struct {
	dies bool
	by   []string // sorted
}

// Collateral returns the pods on nodes that stay which this going node costs, alone or together with others, by
// namespace and name; nil for a node that stays. The node that a pod runs on is its spec.nodeName; pods that wait for
// one are left out.
func (r *Roll) Collateral(node string) []Fate {
	if !r.goes(node) {
		return nil
	}
	var fates []Fate
	pods := map[objectKey]bool{}
	jobs := map[*jobFacts]bool{}
	queue := slices.Clone(r.snap.PodsOn(node))
	visit := func(reached []*corev1.Pod) {
		for _, pod := range reached {
			if r.goes(pod.Spec.NodeName) || pods[keyOf(pod)] {
				continue
			}
			pods[keyOf(pod)] = true
			by := r.doom(pod).by
			if !slices.Contains(by, node) {
				continue
			}
			queue = append(queue, pod)
			if f, lost := r.lostThere(pod, by); lost {
				fates = append(fates, f)
			}
		}
	}
	for at := 0; at < len(queue); at++ {
		pod := queue[at]
		visit(r.snap.PodsOwnedBy(pod.Namespace, pod.UID))
		if facts := r.jobOf(pod); facts != nil && !jobs[facts] && slices.Contains(r.costs(facts), node) {
			jobs[facts] = true
			visit(r.snap.PodsOwnedBy(pod.Namespace, facts.job.UID))
		}
	}
	sortFates(fates)
	return fates
}

// Inbound returns the pods on this node, which stays, that going nodes cost, by namespace and name; nil for a node that
// goes. By names those nodes, the nearest deadline first.
func (r *Roll) Inbound(node string) []Fate {
	if r.goes(node) {
		return nil
	}
	var fates []Fate
	for _, pod := range r.snap.PodsOn(node) {
		if f, lost := r.lostThere(pod, r.doom(pod).by); lost {
			fates = append(fates, f)
		}
	}
	sortFates(fates)
	return fates
}

// jobOf returns the Job that controls the pod, or nil where it has none or it could not be read.
func (r *Roll) jobOf(pod *corev1.Pod) *jobFacts {
	ref := controllerOf(pod)
	if ref == nil || ref.Kind != "Job" || groupOf(ref) != "batch" {
		return nil
	}
	owner, presence := r.snap.Owner(pod.Namespace, *ref)
	job, read := owner.(*batchv1.Job)
	if presence != Found || !read {
		return nil
	}
	return r.snap.job(job)
}

// lostThere returns the fate of a pod on a node that stays, if these going nodes cost it.
func (r *Roll) lostThere(pod *corev1.Pod, by []string) (Fate, bool) {
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror || finished(pod) || len(by) == 0 || pod.Spec.NodeName == "" {
		return Fate{}, false
	}
	lost := certain(Lost, OwnerPodLost,
		"The pod that owns it dies; with that UID gone the garbage collector deletes this one too, on whatever node it is")
	if facts := r.jobOf(pod); facts != nil && len(r.costs(facts)) > 0 {
		lost = facts.willNotRetry(r.outcome(facts).why + "; the Job controller then deletes its pods on every node")
	}
	f := r.snap.fate(pod, lost, nil)
	f.By = r.nearestFirst(by)
	return f, true
}

// nearestFirst orders nodes by deadline: known ones first, then by name.
func (r *Roll) nearestFirst(nodes []string) []string {
	ordered := slices.Clone(nodes)
	slices.SortFunc(ordered, func(a, b string) int {
		left, _ := r.departure(a)
		right, _ := r.departure(b)
		return cmp.Or(
			lastIf(left.Deadline.IsZero(), right.Deadline.IsZero()),
			left.Deadline.Compare(right.Deadline),
			strings.Compare(a, b),
		)
	})
	return ordered
}

// lastIf sorts what the condition holds for behind what it does not hold for.
func lastIf(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// doom works out whether a pod's object dies. Where pods own pods, the whole tree above it is settled at once, as the
// least set that satisfies the rules: a circle of owners dooms nobody.
func (r *Roll) doom(pod *corev1.Pod) doom {
	if node := pod.Spec.NodeName; r.goes(node) {
		return doom{dies: true, by: []string{node}}
	}
	if d, known := r.dooms[keyOf(pod)]; known {
		return d
	}
	if !ownedByPod(pod) {
		return r.doomAlone(pod)
	}
	if r.dooms == nil {
		r.dooms = map[objectKey]doom{}
	}
	family := r.ancestors(pod)
	for _, p := range family {
		r.dooms[keyOf(p)] = r.doomAlone(p)
	}
	for changed := true; changed; {
		changed = false
		for _, p := range slices.Backward(family) { // the eldest first: a chain settles in one round
			before := r.dooms[keyOf(p)]
			after := r.doomByOwners(p, before)
			if after.dies != before.dies || len(after.by) != len(before.by) {
				r.dooms[keyOf(p)] = after
				changed = true
			}
		}
	}
	return r.dooms[keyOf(pod)]
}

// doomAlone is the doom that does not come from owner pods: Terminating already, or of a Job that fails.
func (r *Roll) doomAlone(pod *corev1.Pod) doom {
	d := doom{dies: pod.DeletionTimestamp != nil}
	if finished(pod) {
		return d
	}
	if facts := r.jobOf(pod); facts != nil {
		d.by = r.costs(facts)
		d.dies = d.dies || len(d.by) > 0
	}
	return d
}

// doomByOwners adds the doom by owner pods: the garbage collector deletes a pod when its last owner is gone
// (garbagecollector.go attemptToDeleteItem).
func (r *Roll) doomByOwners(pod *corev1.Pod, d doom) doom {
	by, dying := slices.Clone(d.by), false // dying: an owner is left until then, and it is a pod that dies
	for i := range pod.OwnerReferences {
		ref := &pod.OwnerReferences[i]
		owner, presence := r.snap.Owner(pod.Namespace, *ref)
		if presence == Gone || presence == NotServed {
			continue
		}
		driver, read := owner.(*corev1.Pod)
		if !isPod(ref) || !read {
			return d
		}
		above, settling := r.dooms[keyOf(driver)]
		if !settling {
			above = r.doom(driver)
		}
		if !above.dies {
			return d
		}
		by, dying = append(by, above.by...), true
	}
	if !dying {
		return d
	}
	slices.Sort(by)
	return doom{dies: true, by: slices.Compact(by)}
}

// ancestors returns the pod and all pods on nodes that stay which own it, directly or not, and are not settled yet,
// nearest first.
func (r *Roll) ancestors(pod *corev1.Pod) []*corev1.Pod {
	family := []*corev1.Pod{pod}
	seen := map[objectKey]bool{keyOf(pod): true}
	for at := 0; at < len(family); at++ {
		for _, ref := range family[at].OwnerReferences {
			owner, presence := r.ownerPod(family[at], ref)
			if presence != Found || seen[keyOf(owner)] || r.goes(owner.Spec.NodeName) {
				continue
			}
			if _, settled := r.dooms[keyOf(owner)]; settled {
				continue
			}
			seen[keyOf(owner)] = true
			family = append(family, owner)
		}
	}
	return family
}

func (r *Roll) ownerPod(pod *corev1.Pod, ref metav1.OwnerReference) (*corev1.Pod, Presence) {
	if !isPod(&ref) {
		return nil, Unknown
	}
	owner, presence := r.snap.Owner(pod.Namespace, ref)
	driver, read := owner.(*corev1.Pod)
	if !read {
		return nil, Unknown
	}
	return driver, presence
}

func ownedByPod(pod *corev1.Pod) bool {
	for i := range pod.OwnerReferences {
		if isPod(&pod.OwnerReferences[i]) {
			return true
		}
	}
	return false
}
