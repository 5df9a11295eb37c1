package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/readiness/race"
)

// How the race without the gate ends: with enough refused pods, or after a time.
const (
	enough  = 60
	openFor = 2 * time.Minute
)

// joining has why the mirror of each node that joins is late.
var joining = []race.Cause{race.AbsentNamespace, race.Denied, race.Throttled}

// arrival lets nodes join, once as they are and once with rollcall, and returns every outcome that was not as it should be.
func arrival(ctx context.Context, cluster *livecluster.Cluster, programs *liverollcall.Binaries, say *narrator) error {
	say.step("nodes come, and the scheduler does not know their static pods yet (kubernetes/kubernetes#115325): without rollcall")
	open, err := race.Play(ctx, cluster, race.Options{Name: "open", Causes: joining, Enough: enough, Patience: openFor, Say: say.step})
	if err != nil {
		return err
	}
	say.step("%d pods failed with OutOfcpu in %.0f s; room is for %d of %d", open.AllRefused(), open.Lasted.Seconds(), len(joining), open.Replicas)
	say.step("the same with rollcall: the nodes register with its taint, rollcall-agent and rollcall-controller --release-taint run")
	held, err := race.Play(ctx, cluster, race.Options{Name: "held", Causes: joining, Gate: programs, Say: say.step})
	if err != nil {
		return err
	}
	say.table([]string{"NODES JOIN", "PODS FAILED", "RUN", "WAIT", "NODES RELEASED", "TOO EARLY"}, [][]string{
		row("without rollcall", open, "-", "-"),
		row("with rollcall", held, strconv.Itoa(len(held.Released)), strconv.Itoa(len(held.Early))),
	})
	return wrong(judgeArrival(open, held))
}

func row(how string, r race.Result, further ...string) []string {
	cells := []string{how}
	for _, n := range []int{r.Failed, r.Running, r.Pending} {
		cells = append(cells, strconv.Itoa(n))
	}
	return append(cells, further...)
}

func judgeArrival(open, held race.Result) (problems []string) {
	fit := len(joining)
	if n := open.AllRefused(); n < enough {
		problems = append(problems, fmt.Sprintf("without rollcall %d pods failed with OutOfcpu, want %d at least", n, enough))
	}
	if held.Failed != 0 || held.Running != fit || held.Pending != held.Replicas-fit {
		problems = append(problems, fmt.Sprintf("with rollcall %d pods failed, %d run and %d wait, want 0, %d and %d",
			held.Failed, held.Running, held.Pending, fit, held.Replicas-fit))
	}
	if len(held.Released) != fit || len(held.Early) != 0 {
		problems = append(problems, fmt.Sprintf("released: %v, of these before their mirrors: %v; want all %d nodes, and none", held.Released, held.Early, fit))
	}
	return problems
}
