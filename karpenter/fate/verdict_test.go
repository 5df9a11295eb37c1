package fate

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// want is the answer for one pod.
type want struct {
	verdict   Verdict
	reason    Reason
	certainty Certainty
}

// fateOf returns the fate of the pod of that name when n1 goes.
func fateOf(t *testing.T, r *Roll, node, name string) Fate {
	t.Helper()
	for _, f := range r.On(node) {
		if f.Pod.Name == name {
			return f
		}
	}
	t.Fatalf("no fate for %s on %s", name, node)
	return Fate{}
}

func check(t *testing.T, f Fate, w want) {
	t.Helper()
	if w.certainty == "" {
		w.certainty = Certain
	}
	if got := (want{f.Verdict, f.Reason, f.Certainty}); got != w {
		t.Errorf("%s: got %v, want %v (%s)", f.Pod.Name, got, w, f.Message)
	}
	if f.Message == "" {
		t.Errorf("%s: no message", f.Pod.Name)
	}
}

func deleting[T metav1.Object](o T) T {
	o.SetDeletionTimestamp(&metav1.Time{Time: now})
	return o
}

func withUID[T metav1.Object](o T, uid string) T {
	o.SetUID(types.UID(uid))
	return o
}

func workflow(name string, spec map[string]any) owned {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetName(name)
	u.SetNamespace("ns")
	u.SetUID(types.UID("uid-" + name))
	return owned{u, "argoproj.io/Workflow"}
}

func parallel(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func startingAt(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} }
}

// ruleRow is one row of a table of rules: a pod on n1, which goes, what else there is, and the answer.
type ruleRow struct {
	name  string
	pod   *corev1.Pod
	world []any
	want  want
}

func runRules(t *testing.T, rows []ruleRow) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(append(tt.world, tt.pod)...)
			c.notServed["gone.example.com/Widget"] = true
			check(t, fateOf(t, ask(c, "n1"), "n1", tt.pod.Name), tt.want)
		})
	}
}

var (
	custom = owned{&metav1.ObjectMeta{Namespace: "ns", Name: "kafka", UID: "uid-kafka"}, "strimzi.io/StrimziPodSet"}
	kruise = owned{&metav1.ObjectMeta{Namespace: "ns", Name: "kruise", UID: "uid-kruise"}, "apps.kruise.io/DaemonSet"}
	seed   = owned{&metav1.ObjectMeta{Namespace: "ns", Name: "seed", UID: "uid-seed"}, "/ConfigMap"}
)

// The tables below have a row for each row of DESIGN.md section 3 and each scenario of facts/fate-truth.md section 3 that
// a snapshot can show, Jobs apart. A name begins with the number of its rule.

func TestRulesBeforeOwners(t *testing.T) {
	runRules(t, []ruleRow{
		{"1 Succeeded", pod("a", "n1", phase(corev1.PodSucceeded)), nil, want{verdict: Finished, reason: PodFinished}},
		{"1 Failed, before its owner is asked", pod("a", "n1", phase(corev1.PodFailed), by("apps/ReplicaSet web")),
			[]any{replicaSet("web", 0)}, want{verdict: Finished, reason: PodFinished}},
		{"1 before 2", pod("a", "n1", phase(corev1.PodFailed), annotated(mirrorAnnotation, "h")), nil,
			want{verdict: Finished, reason: PodFinished}},
		{"2 mirror pod", pod("a", "n1", annotated(mirrorAnnotation, "h"), by("/Node n1")), nil, want{verdict: Static, reason: MirrorPod}},
		{"2 without a Node", pod("a", "n1", annotated(mirrorAnnotation, "h")), nil, want{verdict: Static, reason: MirrorPod}},

		{"3 Node controls", pod("a", "n1", by("/Node n1")), nil, want{verdict: GoesWithNode, reason: NodeOwned}},
		{"3 Node owns", pod("a", "n1", beside("/Node n1")), nil, want{verdict: GoesWithNode, reason: NodeOwned}},
		{"3 Node owns beside a plain owner", pod("a", "n1", beside("/ConfigMap seed"), beside("/Node n1")), []any{seed},
			want{verdict: GoesWithNode, reason: NodeOwned}},
		{"3 not where another controls", pod("a", "n1", beside("/Node n1"), by("apps/ReplicaSet web")),
			[]any{replicaSet("web", 1)}, want{verdict: Returns, reason: ReplicaSet}},
		{"3 a Node of another group", pod("a", "n1", by("example.com/Node n1")), nil,
			want{Returns, CustomController, Assumed}},
		{"3 DaemonSet", pod("a", "n1", by("apps/DaemonSet proxy")), []any{&appsv1.DaemonSet{ObjectMeta: meta("proxy")}}, want{verdict: GoesWithNode, reason: DaemonSet}},
		{"3 DaemonSet of any group", pod("a", "n1", by("apps.kruise.io/DaemonSet kruise")), []any{kruise},
			want{verdict: GoesWithNode, reason: DaemonSet}},
		{"3 DaemonSet not looked up", pod("a", "n1", by("apps.kruise.io/DaemonSet kruise")), nil,
			want{GoesWithNode, DaemonSet, Assumed}},
		{"3 DaemonSet gone", pod("a", "n1", by("apps/DaemonSet other")), []any{&appsv1.DaemonSet{ObjectMeta: meta("proxy")}}, want{verdict: Lost, reason: OwnerGone}},
		{"3 annotation", pod("a", "n1", annotated(daemonSetAnnotation, "true")), nil,
			want{verdict: GoesWithNode, reason: DaemonSetAnnotation}},
		{"3 annotation with owners", pod("a", "n1", annotated(daemonSetAnnotation, "true"), by("apps/ReplicaSet web")),
			[]any{replicaSet("web", 1)}, want{verdict: Returns, reason: ReplicaSet}},
		{"3 annotation not true", pod("a", "n1", annotated(daemonSetAnnotation, "false")), nil, want{verdict: Lost, reason: NoController}},

		{"4 bare", pod("a", "n1"), nil, want{verdict: Lost, reason: NoController}},
		{"4 bare and Terminating", pod("a", "n1", terminating), nil, want{verdict: Lost, reason: NoController}},
		{"4 bare with a finalizer", pod("a", "n1", finalizer("example.com/hold")), nil, want{verdict: Lost, reason: NoController}},
	})
}

func TestRulesOfAnyOwner(t *testing.T) {
	runRules(t, []ruleRow{
		{"5 namesake with another UID", pod("a", "n1", by("apps/ReplicaSet web")), []any{withUID(replicaSet("web", 1), "other")},
			want{verdict: Lost, reason: OwnerGone}},
		{"5 controller gone, another owner lives", pod("a", "n1", by("apps/ReplicaSet old"), beside("apps/ReplicaSet web")),
			[]any{replicaSet("web", 1)}, want{verdict: Lost, reason: OwnerGone}},
		{"5 no controller, all owners gone", pod("a", "n1", beside("/ConfigMap x"), beside("/ConfigMap y")), []any{seed},
			want{verdict: Lost, reason: OwnerGone}},
		{"5 kind not served", pod("a", "n1", by("gone.example.com/Widget w")), nil, want{Lost, OwnerGone, Assumed}},
		{"5 no controller, kind not served", pod("a", "n1", beside("gone.example.com/Widget w")), nil, want{Lost, OwnerGone, Assumed}},

		{"6 one owner exists", pod("a", "n1", beside("/ConfigMap x"), beside("/ConfigMap seed")), []any{seed},
			want{verdict: Unsure, reason: OwnerIsNoController}},
		{"6 one owner not looked up", pod("a", "n1", beside("/ConfigMap x"), beside("longhorn.io/Manager m")), []any{seed},
			want{Unsure, OwnerIsNoController, Assumed}},
		{"6 ConfigMap controls", pod("a", "n1", by("/ConfigMap seed")), []any{seed}, want{verdict: Unsure, reason: OwnerIsNoController}},
		{"6 Deployment controls, not looked up", pod("a", "n1", by("apps/Deployment web")), nil, want{Unsure, OwnerIsNoController, Assumed}},
		{"6 CronJob controls, not looked up", pod("a", "n1", by("batch/CronJob c")), nil, want{Unsure, OwnerIsNoController, Assumed}},
		{"6 Lease controls", pod("a", "n1", by("coordination.k8s.io/Lease l")), nil, want{Unsure, OwnerIsNoController, Assumed}},
		{"6 not for a CRD under k8s.io", pod("a", "n1", by("gateway.networking.k8s.io/Gateway g")), nil,
			want{Returns, CustomController, Assumed}},
		{"6 not for a CRD under x-k8s.io", pod("a", "n1", by("leaderworkerset.x-k8s.io/LeaderWorkerSet l")), nil,
			want{Returns, CustomController, Assumed}},

		{"7 ReplicaSet, before its replicas", pod("a", "n1", by("apps/ReplicaSet web")), []any{deleting(replicaSet("web", 0))},
			want{verdict: Lost, reason: OwnerDeleting}},
		{"7 StatefulSet", pod("s-0", "n1", by("apps/StatefulSet s")), []any{deleting(statefulSet("s", 1))}, want{verdict: Lost, reason: OwnerDeleting}},
		{"7 Job", pod("a", "n1", by("batch/Job j")), []any{deleting(job("j"))}, want{verdict: Lost, reason: OwnerDeleting}},
		{"7 any controller", pod("a", "n1", by("strimzi.io/StrimziPodSet k")),
			[]any{owned{&metav1.ObjectMeta{Name: "k", UID: "uid-k", DeletionTimestamp: &metav1.Time{Time: now}}, "strimzi.io/StrimziPodSet"}},
			want{verdict: Lost, reason: OwnerDeleting}},
	})
}

func TestRulesOfOwnerKinds(t *testing.T) {
	runRules(t, []ruleRow{
		{"8 ReplicaSet at 0", pod("a", "n1", by("apps/ReplicaSet web")), []any{replicaSet("web", 0)}, want{verdict: Lost, reason: OwnerScaledDown}},
		{"8 ReplicationController at 0", pod("a", "n1", by("/ReplicationController rc")),
			[]any{&corev1.ReplicationController{ObjectMeta: meta("rc"), Spec: corev1.ReplicationControllerSpec{Replicas: ptr[int32](0)}}},
			want{verdict: Lost, reason: OwnerScaledDown}},
		{"8 ordinal too high", pod("s-2", "n1", by("apps/StatefulSet s")), []any{statefulSet("s", 2)}, want{verdict: Lost, reason: OwnerScaledDown}},
		{"8 ordinal below the start", pod("s-4", "n1", by("apps/StatefulSet s")), []any{statefulSet("s", 2, startingAt(5))},
			want{verdict: Lost, reason: OwnerScaledDown}},
		{"8 before 12", pod("s-2", "n1", by("apps/StatefulSet s"), finalizer("x/y")), []any{statefulSet("s", 2)},
			want{verdict: Lost, reason: OwnerScaledDown}},
		{"8 not with ordinals.start", pod("s-5", "n1", by("apps/StatefulSet s")), []any{statefulSet("s", 1, startingAt(5))},
			want{verdict: Returns, reason: StatefulSet}},
		{"8 no ordinal in the name", pod("s-x", "n1", by("apps/StatefulSet s")), []any{statefulSet("s", 1)},
			want{verdict: Lost, reason: OwnerScaledDown}},
		{"8 a namesake of another group is not asked", pod("a", "n1", by("example.com/ReplicaSet web")), []any{owned{&metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid-web"}, "example.com/ReplicaSet"}},
			want{Returns, CustomController, Assumed}},

		{"11 no retryStrategy", pod("a", "n1", by("argoproj.io/Workflow w")),
			[]any{workflow("w", map[string]any{"templates": []any{map[string]any{"name": "main"}}})},
			want{verdict: Lost, reason: NoRetryStrategy}},
		{"11 in a template", pod("a", "n1", by("argoproj.io/Workflow w")),
			[]any{workflow("w", map[string]any{"templates": []any{map[string]any{}, map[string]any{"retryStrategy": map[string]any{}}}})},
			want{Returns, CustomController, Assumed}},
		{"11 in templateDefaults", pod("a", "n1", by("argoproj.io/Workflow w")),
			[]any{workflow("w", map[string]any{"templates": []any{map[string]any{}},
				"templateDefaults": map[string]any{"retryStrategy": map[string]any{"limit": "2"}}})},
			want{Returns, CustomController, Assumed}},
		{"11 in the spec", pod("a", "n1", by("argoproj.io/Workflow w")),
			[]any{workflow("w", map[string]any{"templates": []any{map[string]any{}}, "retryStrategy": map[string]any{}})},
			want{Returns, CustomController, Assumed}},
		{"11 templates elsewhere", pod("a", "n1", by("argoproj.io/Workflow w")),
			[]any{workflow("w", map[string]any{"workflowTemplateRef": map[string]any{"name": "t"}})},
			want{Returns, CustomController, Assumed}},
		{"11 only metadata", pod("a", "n1", by("argoproj.io/Workflow w")),
			[]any{owned{&metav1.PartialObjectMetadata{ObjectMeta: meta("w")}, "argoproj.io/Workflow"}},
			want{Returns, CustomController, Assumed}},
		{"11 not looked up", pod("a", "n1", by("argoproj.io/Workflow w")), nil, want{Returns, CustomController, Assumed}},
	})
}

func TestRulesOfOwnerPods(t *testing.T) {
	runRules(t, []ruleRow{
		{"10 owner on a going node", pod("a", "n1", by("/Pod d")), []any{pod("d", "n1")}, want{verdict: Lost, reason: OwnerPodLost}},
		{"10 owner returns", pod("a", "n1", by("/Pod d")), []any{pod("d", "n1", by("apps/ReplicaSet web")), replicaSet("web", 1)},
			want{verdict: Lost, reason: OwnerPodLost}},
		{"10 owner has ended there", pod("a", "n1", by("/Pod d")), []any{pod("d", "n1", phase(corev1.PodSucceeded))},
			want{verdict: Lost, reason: OwnerPodLost}},
		{"10 owner stays", pod("a", "n1", by("/Pod d")), []any{pod("d", "n2")}, want{Returns, CustomController, Assumed}},
		{"10 owner's owner on a going node", pod("a", "n1", by("/Pod d")), []any{pod("d", "n2", by("/Pod top")), pod("top", "n1")},
			want{verdict: Lost, reason: OwnerPodLost}},
		{"10 owner's owner Terminating", pod("a", "n1", by("/Pod d")), []any{pod("d", "n2", by("/Pod top")), pod("top", "n3", terminating)},
			want{verdict: Lost, reason: OwnerPodLost}},
		{"10 owner kept by another owner", pod("a", "n1", by("/Pod d")),
			[]any{pod("d", "n2", by("/Pod top"), beside("/ConfigMap seed")), pod("top", "n1"), seed},
			want{Returns, CustomController, Assumed}},
		{"10 owner of a Job that fails", pod("a", "n1", by("/Pod d")),
			[]any{pod("d", "n2", by("batch/Job j")), pod("e", "n1", by("batch/Job j")), job("j", backoff(0))},
			want{verdict: Lost, reason: OwnerPodLost}},
		{"10 owner Terminating is rule 7", pod("a", "n1", by("/Pod d")), []any{pod("d", "n2", terminating)},
			want{verdict: Lost, reason: OwnerDeleting}},
		{"10 owner gone is rule 5", pod("a", "n1", by("/Pod d")), nil, want{verdict: Lost, reason: OwnerGone}},

		{"10 without controller, all owners die", pod("a", "n1", beside("/Pod d"), beside("/ConfigMap x")), []any{pod("d", "n1"), seed},
			want{verdict: Lost, reason: OwnerPodLost}},
		{"10 without controller, an owner stays", pod("a", "n1", beside("/Pod d"), beside("/Pod e")), []any{pod("d", "n1"), pod("e", "n2")},
			want{verdict: Unsure, reason: OwnerIsNoController}},
		{"10 without controller, another owner lives", pod("a", "n1", beside("/Pod d"), beside("/ConfigMap seed")), []any{pod("d", "n1"), seed},
			want{verdict: Unsure, reason: OwnerIsNoController}},
	})
}

func TestRulesOfWhatReturns(t *testing.T) {
	runRules(t, []ruleRow{
		{"12 finalizer", pod("s-0", "n1", by("apps/StatefulSet s"), finalizer("x/y")), []any{statefulSet("s", 1)},
			want{verdict: Stranded, reason: BlockedByFinalizer}},
		{"12 finalizer, set not looked up", pod("s-0", "n1", by("apps/StatefulSet s"), finalizer("x/y")), nil,
			want{Stranded, BlockedByFinalizer, Assumed}},
		{"12 not for a ReplicaSet", pod("a", "n1", by("apps/ReplicaSet web"), finalizer("x/y")), []any{replicaSet("web", 1)},
			want{verdict: Returns, reason: ReplicaSet}},

		{"13 replaced", pod("a", "n1", by("apps/ReplicaSet web"), terminating),
			[]any{replicaSet("web", 1), pod("b", "n2", by("apps/ReplicaSet web"))}, want{verdict: Returns, reason: AlreadyReplaced}},
		{"13 successor still Pending", pod("a", "n1", by("apps/ReplicaSet web"), terminating),
			[]any{replicaSet("web", 1), pod("b", "", by("apps/ReplicaSet web"), phase(corev1.PodPending))},
			want{verdict: Returns, reason: AlreadyReplaced}},
		{"13 not yet", pod("a", "n1", by("apps/ReplicaSet web"), terminating),
			[]any{replicaSet("web", 2), pod("b", "n2", by("apps/ReplicaSet web"))}, want{verdict: Returns, reason: ReplicaSet}},
		{"13 others finished or Terminating", pod("a", "n1", by("apps/ReplicaSet web"), terminating),
			[]any{replicaSet("web", 1), pod("b", "n2", by("apps/ReplicaSet web"), terminating),
				pod("c", "n2", by("apps/ReplicaSet web"), phase(corev1.PodFailed)), pod("d", "n2", beside("apps/ReplicaSet web"))},
			want{verdict: Returns, reason: ReplicaSet}},
		{"13 not while it runs", pod("a", "n1", by("apps/ReplicaSet web")),
			[]any{replicaSet("web", 1), pod("b", "n2", by("apps/ReplicaSet web"))}, want{verdict: Returns, reason: ReplicaSet}},
		{"13 not for a StatefulSet", pod("s-0", "n1", by("apps/StatefulSet s"), terminating), []any{statefulSet("s", 1)},
			want{verdict: Returns, reason: StatefulSet}},

		{"15 ReplicaSet", pod("a", "n1", by("apps/ReplicaSet web")), []any{replicaSet("web", 1)}, want{verdict: Returns, reason: ReplicaSet}},
		{"15 ReplicaSet not looked up", pod("a", "n1", by("apps/ReplicaSet web")), nil, want{Returns, ReplicaSet, Assumed}},
		{"15 replicas unset is 1", pod("a", "n1", by("apps/ReplicaSet web")), []any{&appsv1.ReplicaSet{ObjectMeta: meta("web")}},
			want{verdict: Returns, reason: ReplicaSet}},
		{"15 ReplicationController", pod("a", "n1", by("/ReplicationController rc")),
			[]any{&corev1.ReplicationController{ObjectMeta: meta("rc")}}, want{verdict: Returns, reason: ReplicationController}},
		{"15 a version nobody serves", pod("a", "n1", by("apps/ReplicaSet web"), func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps/v1beta2" }), []any{replicaSet("web", 1)}, want{verdict: Returns, reason: ReplicaSet}},
		{"15 lower ordinal Ready", pod("s-1", "n1", by("apps/StatefulSet s")),
			[]any{statefulSet("s", 2), pod("s-0", "n2", by("apps/StatefulSet s"))}, want{verdict: Returns, reason: StatefulSet}},
		{"15 lower ordinal goes too", pod("s-1", "n1", by("apps/StatefulSet s")),
			[]any{statefulSet("s", 2), pod("s-0", "n1", by("apps/StatefulSet s"))}, want{verdict: Returns, reason: StatefulSet}},
		{"15 lower ordinal unready", pod("s-1", "n1", by("apps/StatefulSet s")),
			[]any{statefulSet("s", 2), pod("s-0", "n2", by("apps/StatefulSet s"), unready)}, want{Returns, StatefulSet, Assumed}},
		{"15 lower ordinal Terminating", pod("s-1", "n1", by("apps/StatefulSet s")),
			[]any{statefulSet("s", 2), pod("s-0", "n2", by("apps/StatefulSet s"), terminating)}, want{Returns, StatefulSet, Assumed}},
		{"15 lower ordinal missing", pod("s-1", "n1", by("apps/StatefulSet s")), []any{statefulSet("s", 2)}, want{Returns, StatefulSet, Assumed}},
		{"15 lower ordinal held by a finalizer", pod("s-1", "n1", by("apps/StatefulSet s")),
			[]any{statefulSet("s", 2), pod("s-0", "n1", by("apps/StatefulSet s"), finalizer("x/y"))}, want{Returns, StatefulSet, Assumed}},
		{"15 Parallel waits for nobody", pod("s-1", "n1", by("apps/StatefulSet s")),
			[]any{statefulSet("s", 2, parallel), pod("s-0", "n2", by("apps/StatefulSet s"), unready)},
			want{verdict: Returns, reason: StatefulSet}},
		{"15 higher ordinal unready", pod("s-0", "n1", by("apps/StatefulSet s")),
			[]any{statefulSet("s", 2), pod("s-1", "n2", by("apps/StatefulSet s"), unready)}, want{verdict: Returns, reason: StatefulSet}},
		{"15 Job not looked up", pod("a", "n1", by("batch/Job j")), nil, want{Returns, Job, Assumed}},
		{"15 custom controller", pod("a", "n1", by("strimzi.io/StrimziPodSet kafka")), []any{custom}, want{Returns, CustomController, Assumed}},
	})
}

func TestOnKnowsOnlyGoingNodes(t *testing.T) {
	c := newCluster(pod("b", "n1"), pod("a", "n1"), pod("c", "n2"))
	r := ask(c, "n1")
	if got := r.On("n2"); got != nil {
		t.Errorf("On a node that stays: got %v, want nil", got)
	}
	fates := r.On("n1")
	if len(fates) != 2 || fates[0].Pod.Name != "a" || fates[1].Pod.Name != "b" {
		t.Errorf("got %v, want a and b in order", fates)
	}
	if r.With(Departure{Node: "n1"}) != r {
		t.Error("With a node that goes already: want the same Roll")
	}
}

func TestMessagesSayWhereAnEvictionDiffers(t *testing.T) {
	c := newCluster(
		pod("j-1", "n1", by("batch/Job j")), job("j", backoff(0)),
		pod("k-1", "n1", by("batch/Job k")), job("k", policy(exitRule(batchv1.PodFailurePolicyActionIgnore), onDisruptionTarget(batchv1.PodFailurePolicyActionIgnore))),
		pod("s-0", "n1", by("apps/StatefulSet s")), statefulSet("s", 1),
		pod("bare", "n1"),
	)
	for name, part := range map[string]string{
		"j-1": "exit code 0 counts as done", "k-1": "podFailurePolicy", "s-0": "out-of-service", "bare": "controller",
	} {
		if f := fateOf(t, ask(c, "n1"), "n1", name); !strings.Contains(f.Message, part) {
			t.Errorf("%s: %q does not say %q", name, f.Message, part)
		}
	}
}
