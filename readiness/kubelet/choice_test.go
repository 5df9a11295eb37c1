package kubelet

import (
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/readiness"
)

func pods(names ...string) []readiness.StaticPod {
	var pods []readiness.StaticPod
	for _, name := range names {
		pods = append(pods, readiness.StaticPod{Namespace: "edge", Name: name})
	}
	return pods
}

// Which source decides, what holds while it is silent, and whose ignored files are shown.
func TestChoice(t *testing.T) {
	c := NewChoice("socket", "directory")
	at := time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	ignored := []readiness.IgnoredFile{{File: "x", Why: "no name"}}
	for _, step := range []struct {
		name, source string
		answer       Answer
		want         string // the source that decides, or ""
		pods         int
		ignored      int
	}{
		{"the preferred one has not been heard", "directory", Answer{State: Known, Pods: pods("a"), Ignored: ignored}, "", 0, 0},
		{"it waits", "socket", Answer{State: Waiting, Why: "initializes"}, "", 0, 0},
		{"it is absent: the next one decides", "socket", Answer{State: Absent, Why: "no socket"}, "directory", 1, 1},
		{"it appears", "socket", Answer{State: Known, Pods: pods("a", "b")}, "socket", 2, 1},
		{"it is silent: what it said holds", "socket", Answer{State: Waiting, Why: "gone"}, "socket", 2, 1},
		{"meanwhile the directory changes", "directory", Answer{State: Known}, "socket", 2, 1},
		{"it answers again", "socket", Answer{State: Known, Pods: pods("b")}, "socket", 1, 0},
	} {
		c.Hear(step.source, step.answer)
		at = at.Add(time.Second)
		got := c.Expected("b1", at)
		if got.Source != step.want || (got.Unknown == "") != (step.want != "") || len(got.Pods) != step.pods || len(got.Ignored) != step.ignored {
			t.Errorf("%s: got %+v", step.name, got)
		}
	}
	before := c.Expected("b1", at)
	if later := c.Expected("b1", at.Add(time.Hour)); !later.Observed.Equal(before.Observed) {
		t.Error("the same content was observed twice")
	}
}
