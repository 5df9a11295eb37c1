package race

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

// fullEnv, when not empty, asks for the long form of the tests.
const fullEnv = "ROLLCALL_FULL"

func repetitions() int {
	if os.Getenv(fullEnv) != "" {
		return 5
	}
	return 1
}

const (
	nodes   = 10
	enough  = 300 // refused pods end a race without the gate
	least   = 50  // it must have refused more than that
	openFor = 2 * time.Minute
)

// causes deals the causes out to n nodes.
func causes(n int) []Cause {
	all := make([]Cause, n)
	for i := range all {
		all[i] = []Cause{AbsentNamespace, Denied, Throttled}[i%3]
	}
	return all
}

// The same race, without the gate and with it.
func TestGateClosesTheRace(t *testing.T) {
	cluster := livecluster.Shared(t)
	programs, err := liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller, liverollcall.Agent)
	if err != nil {
		t.Fatal(err)
	}
	for i := range repetitions() {
		open, err := Play(t.Context(), cluster, Options{
			Name: fmt.Sprintf("open-%d", i), Causes: causes(nodes), Enough: enough, Patience: openFor, Say: t.Logf,
		})
		if err != nil {
			t.Fatal(err)
		}
		gated, err := Play(t.Context(), cluster, Options{Name: fmt.Sprintf("gated-%d", i), Causes: causes(nodes), Gate: programs, Say: t.Logf})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("race %d of %d: without the gate %d pods failed in %.1f s, OutOfcpu by cause: %v; with it %d in %.1f s, %d of %d nodes held, %d of %d pods run and %d wait",
			i+1, repetitions(), open.Failed, open.Lasted.Seconds(), open.Refused, gated.Failed, gated.Lasted.Seconds(),
			gated.Held, nodes, gated.Running, gated.Replicas, gated.Pending)
		// These last as long as the race; a throttled kubelet makes its mirrors in the end, and reports refusals as slowly.
		for _, cause := range []Cause{AbsentNamespace, Denied} {
			if open.Refused[cause] == 0 {
				t.Errorf("without the gate no pod was refused where %s", cause)
			}
		}
		if n := open.AllRefused(); n <= least {
			t.Errorf("without the gate %d pods were refused, want more than %d", n, least)
		}
		if gated.Failed != 0 {
			t.Errorf("with the gate %d pods failed, OutOfcpu by cause: %v; want none", gated.Failed, gated.Refused)
		}
		if gated.Running != nodes || gated.Pending != gated.Replicas-nodes {
			t.Errorf("with the gate %d pods run and %d wait, want %d and %d", gated.Running, gated.Pending, nodes, gated.Replicas-nodes)
		}
		if len(gated.Released) != nodes || len(gated.Early) != 0 {
			t.Errorf("released: %v, of these before their mirrors: %v; want all %d, and none", gated.Released, gated.Early, nodes)
		}
	}
}
