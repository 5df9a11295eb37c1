package fate

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// table holds every pair of verdict and reason that DESIGN.md section 3 knows.
var table = map[Verdict][]Reason{
	Finished:     {PodFinished},
	Static:       {MirrorPod},
	GoesWithNode: {NodeOwned, DaemonSet, DaemonSetAnnotation},
	Lost: {NoController, OwnerGone, OwnerDeleting, OwnerScaledDown, JobFinished, JobSuspended, JobWillNotRetry,
		OwnerPodLost, NoRetryStrategy},
	Unsure:   {OwnerIsNoController},
	Stranded: {BlockedByFinalizer, NoPlaceLeft},
	Returns:  {AlreadyReplaced, ReplicaSet, ReplicationController, StatefulSet, Job, CustomController},
}

// snapshotOf makes a small cluster at random in which every rule has a chance, circles of owners included.
func snapshotOf(rng *rand.Rand) *cluster {
	maybe := func(oneIn int) bool { return rng.IntN(oneIn) == 0 }
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	small := func() int32 { return int32(rng.IntN(4)) }
	var objects []any
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		objects = append(objects, node(name))
	}
	for i := range 3 {
		objects = append(objects, replicaSet(fmt.Sprintf("rs%d", i), small()), statefulSet(fmt.Sprintf("s%d", i), small()))
		j := job(fmt.Sprintf("j%d", i), size(small(), 1+small()), failed(small()))
		for _, mod := range []jobMod{backoff(small()), perIndex(small()), indexedJob, workQueue, suspended, maxFailed(small()),
			succeeded(1), uncounted("uid-p1", "uid-p2"), managed("example.com/x"), jobCondition(batchv1.JobFailed, "True"),
			policy(exitRule(failJob), onDisruptionTarget(ignore)), policy(onDisruptionTarget(failIndex)),
			started(time.Hour, int64(rng.IntN(7200))), policy(onDisruptionTarget(failJob)), backoff(0), backoff(1)} {
			if maybe(8) {
				mod(j)
			}
		}
		if maybe(9) {
			deleting(j)
		}
		objects = append(objects, j)
	}
	objects = append(objects, workflow("w0", map[string]any{"templates": []any{nil, "x", map[string]any{"name": "m"}}}),
		workflow("w1", nil), &appsv1.DaemonSet{ObjectMeta: meta("ds0")}, &corev1.ReplicationController{ObjectMeta: meta("rc1")},
		pdb("b", policyv1.PodDisruptionBudgetStatus{}))
	for i := range 30 {
		p := pod(fmt.Sprintf("p%d", i), pick("n1", "n1", "n2", "n3", "n4", ""))
		if maybe(4) {
			set := rng.IntN(3)
			p.Name = fmt.Sprintf("s%d-%d", set, rng.IntN(3))
			by(fmt.Sprintf("apps/StatefulSet s%d", set))(p)
		}
		for range rng.IntN(3) {
			owner := pick("apps/ReplicaSet rs", "apps/StatefulSet s", "/ReplicationController rc", "batch/Job j", "batch/Job j", "/Pod p", "/Pod p1", "argoproj.io/Workflow w",
				"apps/DaemonSet ds", "/Node n", "/ConfigMap c", "example.com/Widget w") + pick("0", "1", "2", "3")
			pick := []func(string) func(*corev1.Pod){by, beside}[rng.IntN(2)]
			pick(owner)(p)
		}
		for _, mod := range []func(*corev1.Pod){terminating, terminating, unready, tracked, finalizer("x/y"), phase(corev1.PodFailed), phase(corev1.PodSucceeded),
			phase(corev1.PodPending), annotated(mirrorAnnotation, "h"), annotated(daemonSetAnnotation, "true"), index(rng.IntN(5)), index(1),
			failureCount(rng.IntN(3)), annotated(batchv1.JobCompletionIndexAnnotation, "-x"), evicted, exited(143), emptyDir(""), ofWeb} {
			if maybe(6) {
				mod(p)
			}
		}
		objects = append(objects, p)
	}
	c := newCluster(objects...)
	c.notServed["example.com/Widget"] = maybe(2)
	return c
}

func randomly(t *testing.T, rounds uint64, do func(t *testing.T, c *cluster, going []string)) {
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(seed, 42))
		c := snapshotOf(rng)
		going := []string{"n1", "n2", "n3"}[:1+rng.IntN(3)]
		if t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { do(t, c, going) }); t.Failed() {
			return
		}
	}
}

// TestAnswersStayInTheTable: whatever the snapshot, each pod of a going node gets exactly one answer out of the table.
func TestAnswersStayInTheTable(t *testing.T) {
	seen := map[Reason]bool{}
	randomly(t, 400, func(t *testing.T, c *cluster, going []string) {
		for _, place := range []bool{false, true} {
			r := New(c, goes(going...), Options{Now: now, Place: place})
			for _, n := range going {
				fates := r.On(n)
				if len(fates) != len(c.PodsOn(n)) {
					t.Errorf("%s: %d fates for %d pods", n, len(fates), len(c.PodsOn(n)))
				}
				for _, f := range slices.Concat(fates, r.Collateral(n)) {
					seen[f.Reason] = true
					sound(t, f, place)
				}
			}
		}
	})
	for verdict, reasons := range table {
		for _, reason := range reasons {
			if !seen[reason] {
				t.Errorf("no snapshot led to %s %s", verdict, reason)
			}
		}
	}
}

func sound(t *testing.T, f Fate, place bool) {
	t.Helper()
	if !slices.Contains(table[f.Verdict], f.Reason) {
		t.Errorf("%s: %s %s is not in the table", f.Pod.Name, f.Verdict, f.Reason)
	}
	if f.Certainty != Certain && f.Certainty != Assumed || f.Message == "" {
		t.Errorf("%s: certainty %q, message %q", f.Pod.Name, f.Certainty, f.Message)
	}
	stranded := f.Verdict == Stranded && f.Reason == NoPlaceLeft
	if placed := needsRoom(&f) || stranded; place && f.By == nil && placed != (f.Placement != "") {
		t.Errorf("%s: %s %s with placement %q", f.Pod.Name, f.Verdict, f.Reason, f.Placement)
	}
	if stranded != (f.Placement == NoPlace) {
		t.Errorf("%s: %s %s with placement %q", f.Pod.Name, f.Verdict, f.Reason, f.Placement)
	}
}

// FuzzSnapshots runs the same check on snapshots of other seeds.
func FuzzSnapshots(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := New(snapshotOf(rand.New(rand.NewPCG(seed, 7))), goes("n1", "n2"), Options{Now: now, Place: seed%2 == 0})
		for _, f := range slices.Concat(r.On("n1"), r.On("n2"), r.Collateral("n1"), r.Inbound("n3")) {
			sound(t, f, seed%2 == 0)
		}
	})
}

// TestWithIsNew: one more going node asked by With is the same question as all of them asked by New, in whatever order
// the questions came before.
func TestWithIsNew(t *testing.T) {
	randomly(t, 300, func(t *testing.T, c *cluster, going []string) {
		for _, place := range []bool{false, true} {
			o := Options{Now: now, Place: place}
			fresh := New(c, goes(append(slices.Clone(going), "n4")...), o)
			base := New(c, goes(going...), o)
			base.On(going[0])
			base.Inbound("n4")
			one := base.With(Departure{Node: "n4"})
			step := New(c, nil, o)
			for _, n := range append([]string{"n4"}, going...) {
				step = step.With(Departure{Node: n})
				step.On(n)
			}
			for name, r := range map[string]*Roll{"one more": one, "one by one": step} {
				for _, n := range append(slices.Clone(going), "n4") {
					same(t, name+" On "+n, r.On(n), fresh.On(n))
					same(t, name+" Collateral "+n, r.Collateral(n), fresh.Collateral(n))
				}
				same(t, name+" Inbound", r.Inbound("n3"), fresh.Inbound("n3"))
			}
		}
	})
}

func same(t *testing.T, what string, got, want []Fate) {
	t.Helper()
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestInboundMirrorsCollateral: what a going node costs on a node that stays is what that node counts as inbound.
func TestInboundMirrorsCollateral(t *testing.T) {
	found := 0
	randomly(t, 600, func(t *testing.T, c *cluster, going []string) {
		r := ask(c, going...)
		costs := map[string][]string{} // pod → the going nodes that report it
		for _, n := range going {
			for _, f := range r.Collateral(n) {
				if slices.Contains(going, f.Pod.Spec.NodeName) {
					t.Errorf("%s is collateral on going node %s", f.Pod.Name, f.Pod.Spec.NodeName)
				}
				costs[string(f.Pod.UID)] = append(costs[string(f.Pod.UID)], n)
				found++
			}
		}
		for _, n := range []string{"n1", "n2", "n3", "n4"} {
			for _, f := range r.Inbound(n) {
				by := slices.Sorted(slices.Values(f.By))
				if !slices.Equal(costs[string(f.Pod.UID)], by) {
					t.Errorf("%s on %s: inbound by %v, collateral of %v", f.Pod.Name, n, by, costs[string(f.Pod.UID)])
				}
				delete(costs, string(f.Pod.UID))
			}
		}
		if len(costs) > 0 {
			t.Errorf("collateral that is inbound nowhere: %v", costs)
		}
	})
	if found < 100 {
		t.Errorf("only %d collateral pods in all snapshots: the generator no longer makes enough", found)
	}
}
