package fate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPlaces: rule 14 over the fates of all going nodes together. n2 stays and has room for one pod of 3 cpu.
func TestPlaces(t *testing.T) {
	room := readyNode("n2", "")
	large := asking("cpu=3")
	web := by("apps/ReplicaSet web")
	set := by("apps/StatefulSet s")
	hold := pod("hold", "n2", by("apps/ReplicaSet web"), asking("cpu=3"))
	tests := []struct {
		name    string
		objects []any
		want    want
		place   Placement
		message string
	}{
		{"room", []any{pod("a", "n1", web, large)}, want{verdict: Returns, reason: ReplicaSet}, FitsNow, "n2"},
		{"no room", []any{pod("a", "n1", web, large), hold}, want{verdict: Stranded, reason: NoPlaceLeft}, NoPlace, "no place"},
		{"no room, the owner not looked up", []any{pod("a", "n1", by("batch/Job x"), large), hold},
			want{Stranded, NoPlaceLeft, Assumed}, NoPlace, "no place"},
		{"a lost pod needs none", []any{pod("a", "n1", web, large), pod("b", "n1", large, priority(9))},
			want{verdict: Returns, reason: ReplicaSet}, FitsNow, ""},
		{"a lost pod gets none", []any{pod("a", "n1", large)}, want{verdict: Lost, reason: NoController}, "", ""},
		{"a pod that is unsure takes none", []any{pod("a", "n1", web, large), pod("b", "n1", by("/ConfigMap c"), large, priority(9))},
			want{verdict: Returns, reason: ReplicaSet}, FitsNow, ""},
		{"nor does one that is replaced", []any{pod("a", "n1", web, large, terminating), pod("b", "n2", web), pod("c", "n2", web)},
			want{verdict: Returns, reason: AlreadyReplaced}, "", ""},
		{"a finalizer decides before room", []any{pod("s-0", "n1", set, large, finalizer("x/y")), hold},
			want{verdict: Stranded, reason: BlockedByFinalizer}, "", ""},
		{"a lower ordinal without room", []any{pod("s-1", "n1", set), pod("s-0", "n1", set, asking("cpu=9"))},
			want{Returns, StatefulSet, Assumed}, FitsNow, "ordinal 0"},
		{"room of a pod that the node costs elsewhere", []any{pod("a", "n1", web, large), job("j", size(2, 2), backoff(0)),
			pod("j-1", "n1", by("batch/Job j")), pod("j-2", "n2", by("batch/Job j"), large)},
			want{verdict: Returns, reason: ReplicaSet}, FitsNow, "n2"},
		{"room of a Job's pod that stays", []any{pod("a", "n1", web, large), job("j", size(2, 2), backoff(9)),
			pod("j-1", "n1", by("batch/Job j")), pod("j-2", "n2", by("batch/Job j"), large)},
			want{verdict: Stranded, reason: NoPlaceLeft}, NoPlace, ""},
		{"room of a Terminating pod", []any{pod("a", "n1", web, large), pod("b", "n2", large, terminating)},
			want{Stranded, NoPlaceLeft, Assumed}, NoPlace, "once the Terminating pods there have gone: fits on n2"},
		{"no room without the Terminating pod either", []any{pod("a", "n1", web, asking("cpu=9")), pod("b", "n2", large, terminating)},
			want{verdict: Stranded, reason: NoPlaceLeft}, NoPlace, "no place"},
		{"a seat is not that of another pod with its UID", []any{pod("b", "n1", web, asking("cpu=9"), uid("uid-a")), pod("a", "n1", web, large)},
			want{verdict: Stranded, reason: NoPlaceLeft}, NoPlace, "no place"},
		{"pods of another going node come first", []any{pod("a", "n1", web, large), pod("b", "n9", web, large, priority(9))},
			want{verdict: Stranded, reason: NoPlaceLeft}, NoPlace, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := append([]any{room, readyNode("n1", ""), readyNode("n9", ""), replicaSet("web", 2), statefulSet("s", 2)}, tt.objects...)
			c := newCluster(objects...)
			first := tt.objects[0].(*corev1.Pod)
			o := Options{Now: now, Place: true}
			for _, r := range []*Roll{New(c, goes("n1", "n9"), o), New(c, goes("n9"), o).With(Departure{Node: "n1"})} {
				f := fateOf(t, r, "n1", first.Name)
				check(t, f, tt.want)
				if f.Placement != tt.place || !strings.Contains(f.Message, tt.message) {
					t.Errorf("got %q, %q; want %q and a message with %q", f.Placement, f.Message, tt.place, tt.message)
				}
			}
		})
	}
}
