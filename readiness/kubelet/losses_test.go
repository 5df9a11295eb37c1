package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/readiness"
)

// names are those of the pods, as name or name=hash.
func names(pods []readiness.StaticPod) string {
	var names []string
	for _, pod := range pods {
		name := pod.Name
		if pod.Hash != "" {
			name += "=" + pod.Hash
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// What is added or changed counts at once, what is missing when lists have lacked it for the window.
func TestLosses(t *testing.T) {
	l := losses{window: 10 * time.Second}
	start := time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	changed := []readiness.StaticPod{{Namespace: "edge", Name: "a", Hash: "2"}}
	for _, step := range []struct {
		name  string
		after time.Duration
		list  []readiness.StaticPod
		want  string
	}{
		{"none to lose", 0, nil, ""},
		{"added", 0, pods("a", "b"), "a b"},
		{"lost", 1 * time.Second, pods("a"), "a b"},
		{"there again", 9 * time.Second, pods("a", "b"), "a b"},
		{"lost anew: the time begins anew", 11 * time.Second, pods("a"), "a b"},
		{"another in its place", 12 * time.Second, pods("a", "c"), "a c b"},
		{"not yet", 20 * time.Second, pods("a", "c"), "a c b"},
		{"confirmed", 21 * time.Second, pods("a", "c"), "a c"},
		{"changed, and one is lost", 22 * time.Second, changed, "a=2 c"},
		{"each has its own time", 31 * time.Second, nil, "a=2 c"},
		{"the first is confirmed", 32 * time.Second, nil, "a=2"},
		{"the second is", 41 * time.Second, nil, ""},
	} {
		if got := names(l.take(step.list, start.Add(step.after))); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
	l.take(pods("a"), start)
	l.take(nil, start)
	l.restart()
	if got := names(l.take(nil, start.Add(time.Hour))); got != "a" {
		t.Errorf("a list of the kubelet before agreed with one of the kubelet after: %q", got)
	}
}
