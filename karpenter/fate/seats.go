package fate

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// placeAll decides all going nodes' pods and simulates, once per Roll, where those that come back find room (rule 14).
func (r *Roll) placeAll() {
	if r.placed {
		return
	}
	r.placed = true
	going := map[string]bool{}
	var pods, leaving []*corev1.Pod
	for _, node := range r.goingNodes() {
		going[node] = true
		for _, f := range r.Collateral(node) {
			leaving = append(leaving, f.Pod)
		}
		for _, f := range r.decided(node) {
			if needsRoom(&f) {
				pods = append(pods, f.Pod)
			}
		}
	}
	if r.snap.placer == nil {
		r.snap.placer = newPlacer(r.snap.World, r.snap.options)
	}
	seats := r.snap.placer.place(going, pods, leaving)
	seatOf := func(pod *corev1.Pod) (seat, bool) { s, found := seats[nameOf(pod)]; return s, found }
	for node := range going {
		fates := r.fates[node]
		for i := range fates {
			if f := &fates[i]; needsRoom(f) {
				r.seat(f, seatOf)
			}
		}
	}
}

// needsRoom says whether the pod's successor is still to be made. A pod that is Unsure needs none: were it counted, it
// could strand others on a guess.
func needsRoom(f *Fate) bool { return f.Verdict == Returns && f.Reason != AlreadyReplaced }

// seat applies rule 14 to one fate. A StatefulSet's pod that has room may still wait for a lower ordinal that has none.
func (r *Roll) seat(f *Fate, seatOf func(*corev1.Pod) (seat, bool)) {
	s, found := seatOf(f.Pod)
	if !found {
		return
	}
	f.Placement = s.placement
	if s.placement == NoPlace {
		f.Verdict, f.Reason = Stranded, NoPlaceLeft
		f.Message = "It would be made again, but finds no place: " + s.why
		if s.later != "" {
			f.Certainty = Assumed
			f.Message += "; once the Terminating pods there have gone: " + s.later + " (assumed: they take their time)"
		}
		return
	}
	if s.why != "" {
		f.Message += "; " + s.why
	}
	if f.Reason != StatefulSet {
		return
	}
	owner, _ := r.snap.Owner(f.Pod.Namespace, *controllerOf(f.Pod))
	set, read := owner.(*appsv1.StatefulSet)
	if !read || set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		return
	}
	mine, _ := ordinalIn(set, f.Pod)
	for _, m := range r.snap.set(set).members {
		if below, seated := seatOf(m.pod); m.ordinal < mine && seated && below.placement == NoPlace {
			f.Certainty = Assumed
			f.Message = "Its StatefulSet " + set.Name + " makes it again only after ordinal " + number(m.ordinal) +
				", which finds no place (assumed: it does later)"
			return
		}
	}
}
