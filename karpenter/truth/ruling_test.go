package truth

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/karpenter/check"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// The test can fail: a verdict that did not come true is told from one that did.
func TestRulings(t *testing.T) {
	answer := func(v fate.Verdict, r fate.Reason, message string) row {
		return row{pod: &corev1.Pod{}, onGoing: true, named: true, verdict: check.Pod{Verdict: v, Reason: r, Message: message}}
	}
	there := func(r row, o outcome) row { r.onGoing, r.outcome = false, o; return r }
	came := func(r row, o outcome) row { r.outcome = o; return r }
	evictedTo := func(r row, o outcome) row {
		r.drained, r.outcome, r.want = true, o, expectation{drained: o, says: "evicted in time"}
		return r
	}
	silence := row{pod: &corev1.Pod{}}
	stopping := row{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}}
	isLost := answer(fate.Lost, fate.NoController, "")
	comesBack := answer(fate.Returns, fate.ReplicaSet, "")
	for name, tt := range map[string]struct {
		row  row
		want ruling
	}{
		"lost and gone":                      {came(isLost, notRecreated), holds},
		"lost, kept by a finalizer":          {came(isLost, stuck), holds},
		"lost and recreated":                 {came(isLost, recreated), isFalse},
		"lost and pending":                   {came(isLost, pending), isFalse},
		"lost and done":                      {came(isLost, done), isFalse},
		"lost and alive":                     {came(isLost, alive), isFalse},
		"lost, not yet gone":                 {came(isLost, underWay), isFalse},
		"returns and does":                   {came(comesBack, recreated), holds},
		"returns and does not":               {came(comesBack, notRecreated), isFalse},
		"returns and finds no place":         {came(comesBack, pending), isFalse},
		"replaced already, and once more":    {came(answer(fate.Returns, fate.AlreadyReplaced, ""), recreated), isFalse},
		"stranded and pending":               {came(answer(fate.Stranded, fate.NoPlaceLeft, ""), pending), holds},
		"stranded and recreated":             {came(answer(fate.Stranded, fate.NoPlaceLeft, ""), recreated), isFalse},
		"held and stuck":                     {came(answer(fate.Stranded, fate.BlockedByFinalizer, ""), stuck), holds},
		"static and recreated":               {came(answer(fate.Static, fate.MirrorPod, ""), recreated), isFalse},
		"goes with its node and alive":       {came(answer(fate.GoesWithNode, fate.DaemonSet, ""), alive), isFalse},
		"unsure":                             {came(answer(fate.Unsure, fate.OwnerIsNoController, ""), recreated), noClaim},
		"no answer for a pod of the node":    {row{pod: &corev1.Pod{}, onGoing: true, outcome: notRecreated}, isFalse},
		"lost elsewhere and deleted":         {there(isLost, deletedThere), holds},
		"lost elsewhere and alive":           {there(isLost, alive), isFalse},
		"unnamed and alive":                  {there(silence, alive), unspoken},
		"unnamed and deleted":                {there(silence, deletedThere), isFalse},
		"unnamed, deleted before":            {there(stopping, deletedThere), unspoken},
		"the eviction's end, in the message": {evictedTo(answer(fate.Lost, fate.JobWillNotRetry, "evicted in time, it"), done), evicted},
		"the eviction's end, not said":       {evictedTo(answer(fate.Lost, fate.JobWillNotRetry, ""), done), isFalse},
	} {
		if got := tt.row.ruling(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
