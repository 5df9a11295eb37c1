package truth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// A scenario is one way in which a pod depends on its node. All its pods bear its name as a label.
type scenario struct {
	name string
	// make creates the objects while no node takes pods; they land on the node that goes.
	make func(*site)
	// pend changes pods that wait for the node.
	pend func(*site)
	// shape brings what runs into the state that check is asked about.
	shape func(*site)
	// partner makes what stands on the node that stays.
	partner func(*site)
	// pods are the unfinished pods, by part. Finished ones are expected to be Finished and deleted.
	pods []expectation
}

// An expectation is what check has to say of a pod and what happens to it in each round.
type expectation struct {
	part string
	// there is set for pods on the node that stays.
	there     bool
	count     int
	verdict   fate.Verdict
	reason    fate.Reason
	certainty fate.Certainty
	flag      fate.Flag
	// drained and died are the right outcomes of the two rounds. kept: the drain itself leaves the pod alone.
	drained, died outcome
	kept          bool
	// either is an outcome that is as right in both rounds, where it hangs on an order that nobody promises.
	either outcome
	// says is part of the message, where the eviction ends otherwise.
	says string
}

func expect(v fate.Verdict, r fate.Reason, o outcome) expectation {
	return expectation{count: 1, verdict: v, reason: r, certainty: fate.Certain, drained: o, died: o}
}

func lost(r fate.Reason) expectation    { return expect(fate.Lost, r, notRecreated) }
func returns(r fate.Reason) expectation { return expect(fate.Returns, r, recreated) }

// costs is a pod on the healthy node that goes with the other.
func costs(r fate.Reason) expectation {
	e := expect(fate.Lost, r, deletedThere)
	e.there = true
	return e
}

// unharmed is a pod on the healthy node of which check says nothing.
func unharmed() expectation { return expectation{there: true, count: 1, drained: alive, died: alive} }

// leaves is a pod on the healthy node that is stopping anyway: check says nothing of it, and it goes.
func leaves() expectation {
	return expectation{there: true, count: 1, drained: deletedThere, died: deletedThere}
}

func (e expectation) of(part string) expectation { e.part = part; return e }
func (e expectation) times(n int) expectation    { e.count = n; return e }
func (e expectation) assumed() expectation       { e.certainty = fate.Assumed; return e }
func (e expectation) flagged(f fate.Flag) expectation {
	e.flag = f
	return e
}

// leftAlone: the drain does not touch the pod, or is refused.
func (e expectation) leftAlone(says string) expectation { e.kept, e.says = true, says; return e }

// evictedTo: an eviction ends otherwise than the machine's death, and the message says so.
func (e expectation) evictedTo(o outcome, says string) expectation {
	e.drained, e.says = o, says
	return e
}

// orElse: another outcome is as right.
func (e expectation) orElse(o outcome) expectation { e.either = o; return e }

// inFact: what happens is not what an Assumed verdict claims.
func (e expectation) inFact(o outcome) expectation { e.drained, e.died = o, o; return e }

// The last ones have a pod that is stopping when the question is asked, so they are made last.
var scenarios = slices.Concat(bareScenarios, ownerScenarios, replicaScenarios, statefulSetScenarios, placeScenarios,
	jobScenarios, jobPolicyScenarios, jobIndexScenarios, freedScenarios)

// wanted returns what the pod's scenario expects of it.
func (s *site) wanted(pod *corev1.Pod, onGoing bool) (expectation, bool) {
	if finished(pod) {
		return expect(fate.Finished, fate.PodFinished, notRecreated), true
	}
	at := slices.IndexFunc(s.scenarios, func(sc scenario) bool { return sc.name == pod.Labels[scenarioLabel] })
	if at < 0 {
		return expectation{}, false
	}
	var whole *expectation
	for i := range s.scenarios[at].pods {
		e := &s.scenarios[at].pods[i]
		switch {
		case e.there == onGoing:
		case e.part == partOf(pod):
			return *e, true
		case e.part == "":
			whole = e
		}
	}
	if whole == nil {
		return expectation{}, false
	}
	return *whole, true
}

// partOf tells the pods of one scenario apart: by the test's own label, by index, or by ordinal.
func partOf(pod *corev1.Pod) string {
	for _, label := range []string{partLabel, jobIndexLabel, "apps.kubernetes.io/pod-index"} {
		if part := pod.Labels[label]; part != "" {
			return part
		}
	}
	return ""
}

// unsettled lists the pods that a scenario still waits for.
func (s *site) unsettled() string {
	var out strings.Builder
	for _, p := range s.ledger.living(func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending }) {
		fmt.Fprintf(&out, "%s on %q is %s\n", p.Name, p.Spec.NodeName, p.Status.Phase)
	}
	for i := range s.scenarios {
		for _, e := range s.scenarios[i].pods {
			if n := s.count(&s.scenarios[i], e); n != e.count {
				fmt.Fprintf(&out, "%s has %d pods of part %q (healthy node: %t), want %d\n", s.scenarios[i].name, n, e.part, e.there, e.count)
			}
		}
	}
	return out.String()
}

// everyPair is the table of DESIGN.md section 3: each verdict with each of its reasons.
var everyPair = map[fate.Verdict][]fate.Reason{
	fate.Finished:     {fate.PodFinished},
	fate.Static:       {fate.MirrorPod},
	fate.GoesWithNode: {fate.NodeOwned, fate.DaemonSet, fate.DaemonSetAnnotation},
	fate.Lost: {fate.NoController, fate.OwnerGone, fate.OwnerDeleting, fate.OwnerScaledDown, fate.JobFinished,
		fate.JobSuspended, fate.JobWillNotRetry, fate.OwnerPodLost, fate.NoRetryStrategy},
	fate.Unsure:   {fate.OwnerIsNoController},
	fate.Stranded: {fate.BlockedByFinalizer, fate.NoPlaceLeft},
	fate.Returns: {fate.AlreadyReplaced, fate.ReplicaSet, fate.ReplicationController, fate.StatefulSet, fate.Job,
		fate.CustomController},
}

// Every pair of the table occurs; all of them can exist on a live cluster. Two do so in one way only: OwnerGone beside a
// living garbage collector needs a pod that takes its time to stop, or an owner of a kind that is not served; and
// NoRetryStrategy is about Argo's controller, which does not run here: its outcome shows what Kubernetes alone does.
func TestEveryRuleOccurs(t *testing.T) {
	occurs := map[fate.Verdict]map[fate.Reason]bool{fate.Finished: {fate.PodFinished: true}} // wanted, for every finished pod
	names, pods := map[string]bool{}, 0
	for _, sc := range scenarios {
		if names[sc.name] {
			t.Errorf("two scenarios are called %s", sc.name)
		}
		names[sc.name] = true
		for _, e := range sc.pods {
			if occurs[e.verdict] == nil {
				occurs[e.verdict] = map[fate.Reason]bool{}
			}
			occurs[e.verdict][e.reason] = true
			if !e.there {
				pods += e.count
			}
		}
	}
	for verdict, reasons := range everyPair {
		for _, reason := range reasons {
			if !occurs[verdict][reason] {
				t.Errorf("no scenario is %s/%s", verdict, reason)
			}
		}
	}
	if pods < 45 {
		t.Errorf("%d pods on the node that goes, want at least 45", pods)
	}
}
