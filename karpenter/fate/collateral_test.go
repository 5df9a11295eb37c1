package fate

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// summaries returns "pod on node: reason" for each fate.
func summaries(fates []Fate) []string {
	var all []string
	for _, f := range fates {
		all = append(all, f.Pod.Name+" on "+f.Pod.Spec.NodeName+": "+string(f.Reason))
	}
	return all
}

func TestCollateral(t *testing.T) {
	inJob := by("batch/Job j")
	configMap := owned{&corev1.ConfigMap{ObjectMeta: meta("seed")}, "/ConfigMap"}
	tests := []struct {
		name    string
		objects []any
		want    []string // what n1 costs
	}{
		{"a Job that fails", []any{job("j", size(3, 3), backoff(0)), pod("a", "n1", inJob), pod("b", "n2", inJob), pod("c", "n3", inJob)},
			[]string{"b on n2: JobWillNotRetry", "c on n3: JobWillNotRetry"}},
		{"not those that have ended or wait for a node", []any{job("j", size(3, 3), backoff(0)), pod("a", "n1", inJob),
			pod("b", "n2", inJob, phase(corev1.PodFailed)), pod("c", "", inJob)}, nil},
		{"a Job with retries", []any{job("j", size(3, 3), backoff(1)), pod("a", "n1", inJob), pod("b", "n2", inJob)}, nil},
		{"FailJob", []any{job("j", size(3, 3), policy(onDisruptionTarget(failJob))), pod("a", "n1", inJob), pod("b", "n2", inJob)},
			[]string{"b on n2: JobWillNotRetry"}},
		{"FailIndex leaves the other indexes", []any{job("j", size(3, 3), perIndex(3), policy(onDisruptionTarget(failIndex))),
			pod("a", "n1", inJob, index(0)), pod("b", "n2", inJob, index(1))}, nil},
		{"maxFailedIndexes", []any{job("j", size(3, 3), perIndex(0), maxFailed(0)),
			pod("a", "n1", inJob, index(0)), pod("b", "n2", inJob, index(1))}, []string{"b on n2: JobWillNotRetry"}},
		{"a Job that has ended", []any{job("j", size(3, 3), backoff(0), suspended), pod("a", "n1", inJob), pod("b", "n2", inJob)}, nil},
		{"a Job that is being deleted", []any{deleting(job("j", size(3, 3), backoff(0))), pod("a", "n1", inJob), pod("b", "n2", inJob)}, nil},
		{"a Job whose pods there have ended", []any{job("j", size(3, 3), backoff(0)), pod("a", "n1", inJob, phase(corev1.PodFailed)), pod("b", "n2", inJob)}, nil},
		{"a Job whose pod there has ended and is not counted yet", []any{job("j", size(3, 3), backoff(0)),
			pod("a", "n1", inJob, tracked, phase(corev1.PodFailed)), pod("b", "n2", inJob)}, []string{"b on n2: JobWillNotRetry"}},
		{"a Job that ignores how its pod there has ended", []any{job("j", size(3, 3), backoff(0), policy(onDisruptionTarget(ignore))),
			pod("a", "n1", inJob, tracked, phase(corev1.PodFailed), evicted), pod("b", "n2", inJob)}, nil},
		{"a Job that fails by a pod elsewhere that has ended", []any{job("j", size(3, 3), backoff(0)),
			pod("a", "n3", inJob, tracked, phase(corev1.PodFailed)), pod("b", "n2", inJob)}, nil},

		{"executors", []any{pod("d", "n1"), pod("e", "n2", by("/Pod d")), pod("f", "n1", by("/Pod d"))}, []string{"e on n2: OwnerPodLost"}},
		{"executors of a driver that has ended", []any{pod("d", "n1", phase(corev1.PodSucceeded)), pod("e", "n2", by("/Pod d"))},
			[]string{"e on n2: OwnerPodLost"}},
		{"executors of a driver that is being evicted", []any{pod("d", "n1", terminating), pod("e", "n2", by("/Pod d"))},
			[]string{"e on n2: OwnerPodLost"}},
		{"an owner without controller: true", []any{pod("d", "n1"), pod("e", "n2", beside("/Pod d"))}, []string{"e on n2: OwnerPodLost"}},
		{"another owner that lives", []any{pod("d", "n1"), pod("e", "n2", by("/Pod d"), beside("/ConfigMap seed")), configMap}, nil},
		{"another owner that is gone", []any{pod("d", "n1"), pod("e", "n2", by("/Pod d"), beside("/ConfigMap x")), configMap},
			[]string{"e on n2: OwnerPodLost"}},
		{"two owner pods of which one stays", []any{pod("d", "n1"), pod("k", "n3"), pod("e", "n2", by("/Pod d"), beside("/Pod k"))}, nil},
		{"down the tree", []any{pod("d", "n1"), pod("e", "n2", by("/Pod d")), pod("f", "n3", by("/Pod e"))},
			[]string{"e on n2: OwnerPodLost", "f on n3: OwnerPodLost"}},
		{"through one that has ended", []any{pod("d", "n1"), pod("e", "n2", by("/Pod d"), phase(corev1.PodSucceeded)), pod("f", "n3", by("/Pod e"))},
			[]string{"f on n3: OwnerPodLost"}},
		{"below a failing Job", []any{job("j", size(3, 3), backoff(0)), pod("a", "n1", inJob), pod("b", "n2", inJob), pod("c", "n3", by("/Pod b"))},
			[]string{"b on n2: JobWillNotRetry", "c on n3: OwnerPodLost"}},
		{"a circle of owners", []any{pod("a", "n1"), pod("d", "n2", by("/Pod e")), pod("e", "n2", by("/Pod d"))}, nil},
		{"a circle that hangs on a dying pod", []any{pod("a", "n1"), pod("d", "n2", by("/Pod e"), beside("/Pod a")), pod("e", "n2", by("/Pod d"))}, nil},
		{"a pod that owns itself", []any{pod("a", "n1"), pod("d", "n2", by("/Pod d"))}, nil},
		{"a mirror pod comes back by itself", []any{pod("d", "n1"), pod("m", "n2", by("/Pod d"), annotated(mirrorAnnotation, "h"))}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(tt.objects...)
			for _, r := range []*Roll{ask(c, "n1"), ask(c).With(Departure{Node: "n1"})} {
				if got := summaries(r.Collateral("n1")); !slices.Equal(got, tt.want) {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			}
			if got := ask(c).Collateral("n1"); got != nil {
				t.Errorf("for a node that stays: got %v, want nil", got)
			}
		})
	}
}

func TestCollateralOfSeveralNodes(t *testing.T) {
	inJob := by("batch/Job j")
	c := newCluster(job("j", size(3, 3), backoff(1)), pod("a", "n1", inJob), pod("b", "n2", inJob), pod("c", "n3", inJob))
	if got := ask(c, "n1").Collateral("n1"); got != nil {
		t.Errorf("one node: got %v, want none", summaries(got))
	}
	r := ask(c, "n1", "n2")
	for _, n := range []string{"n1", "n2"} {
		got := r.Collateral(n)
		if !slices.Equal(summaries(got), []string{"c on n3: JobWillNotRetry"}) || !slices.Equal(got[0].By, []string{"n1", "n2"}) {
			t.Errorf("%s: got %v by %v", n, summaries(got), got[0].By)
		}
	}
}

func TestInboundNamesTheNearestDeadlineFirst(t *testing.T) {
	inJob := by("batch/Job j")
	c := newCluster(job("j", size(9, 9), backoff(0)), pod("z", "home", inJob),
		pod("a", "a-pending", inJob), pod("b", "b-committed", inJob), pod("c", "c-late", inJob),
		pod("d", "d-soon", inJob), pod("e", "e-soon-pending", inJob), pod("f", "f-pending", inJob))
	r := New(c, []Departure{
		{Node: "f-pending"}, {Node: "a-pending"}, {Node: "b-committed", Committed: true},
		{Node: "c-late", Deadline: now.Add(time.Hour)},
		{Node: "e-soon-pending", Deadline: now.Add(time.Minute)},
		{Node: "d-soon", Deadline: now.Add(time.Minute), Committed: true},
	}, Options{Now: now})
	got := r.Inbound("home")
	want := []string{"d-soon", "e-soon-pending", "c-late", "a-pending", "b-committed", "f-pending"}
	if len(got) != 1 || !slices.Equal(got[0].By, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if got[0].Verdict != Lost || got[0].Reason != JobWillNotRetry || got[0].Message == "" {
		t.Errorf("got %v", got[0])
	}
	if r.Inbound("d-soon") != nil {
		t.Error("for a node that goes: want nil")
	}
}

// TestDeepTrees: a long chain and a dense graph of owners are settled without recursion and in little time.
func TestDeepTrees(t *testing.T) {
	objects := []any{pod("p0", "n1")}
	for i := 1; i < 3000; i++ {
		objects = append(objects, pod("p"+number(int64(i)), "n2", by("/Pod p"+number(int64(i-1)))))
	}
	if got := ask(newCluster(objects...), "n1").Collateral("n1"); len(got) != 2999 {
		t.Errorf("chain: got %d pods, want 2999", len(got))
	}
	objects = []any{pod("top", "n1")}
	for layer := range 20 {
		for i := range 10 {
			p := pod("l"+number(int64(layer))+"-"+number(int64(i)), "n2")
			if layer == 0 {
				beside("/Pod top")(p)
			}
			for above := range 10 {
				if layer > 0 {
					beside("/Pod l" + number(int64(layer-1)) + "-" + number(int64(above)))(p)
				}
			}
			objects = append(objects, p)
		}
	}
	if got := ask(newCluster(objects...), "n1").Collateral("n1"); len(got) != 200 {
		t.Errorf("layers: got %d pods, want 200", len(got))
	}
}

// TestPodsWithoutUID: a hand-written input may give none; the answer is still one for each pod.
func TestPodsWithoutUID(t *testing.T) {
	a, b := pod("a", "n1"), pod("b", "n1", terminating)
	a.UID, b.UID = types.UID(""), types.UID("")
	if got := ask(newCluster(a, b), "n1").On("n1"); len(got) != 2 {
		t.Errorf("got %d fates, want 2", len(got))
	}
}
