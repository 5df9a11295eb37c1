package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/readiness"
)

// NoReadinessTaint is the reason of the Event on a Node that nothing held.
const NoReadinessTaint = "NoReadinessTaint"

// release makes the Node's condition say what holds, and returns when to look again.
func (a *Agent) release(ctx context.Context, expected readiness.Expected, now time.Time) (time.Duration, error) {
	if on := a.node.Status.NodeInfo.BootID; expected.Unknown == "" && on != a.BootID {
		expected = readiness.Expected{Unknown: fmt.Sprintf("the Node shows boot %q, this machine is in boot %q", on, a.BootID)}
	}
	a.warnOfNoTaint(ctx)
	result := readiness.Evaluate(a.node, expected, a.pods)
	// All mirrors must have stood for a while.
	if wait := a.settling.Wait(result, a.Settle, now); wait > 0 {
		return wait, nil
	}
	// A first answer may take a moment.
	if wait := a.started.Add(calm).Sub(now); result.Reason == readiness.KubeletNotReady && wait > 0 {
		return wait, nil
	}
	next := a.warnOfHolding(ctx, result, now)
	condition, differs := result.Condition(a.node, a.Condition, now)
	if !differs {
		return next, nil
	}
	body, err := readiness.ApplyCondition(a.node, condition)
	if err != nil {
		return 0, err
	}
	node, err := a.API.ApplyStatus(ctx, domain.FieldManager, body)
	if apierrors.IsConflict(err) {
		// Somebody wrote to the Node since it was seen: look again before judging it.
		if node, err = a.API.GetNode(ctx); err == nil {
			a.see(node)
			return 0, nil
		}
	}
	if err != nil {
		return 0, err
	}
	a.see(node)
	a.Log.Info("condition written", "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
	return next, nil
}

// warnOfNoTaint says once that the Node was made without the taint: pods may have been placed on it already. A kubelet
// gives it only when it makes the Node (facts/static-pods.md section 7, row 39). A Node that bears the condition was judged
// before, and released.
func (a *Agent) warnOfNoTaint(ctx context.Context) {
	if a.Taint.On(a.node) || readiness.ConditionOf(a.node, a.Condition) != nil {
		return
	}
	a.tell(ctx, NoReadinessTaint, fmt.Sprintf("the node registered without the taint %s: nothing held pods back while its static pods were not on the books; "+
		"give it in registerWithTaints of the kubelet's configuration, or in startupTaints of Karpenter's NodePool", a.Taint))
}

// warnOfHolding says once, in an Event, that the node has been held for long, and returns when that is due.
func (a *Agent) warnOfHolding(ctx context.Context, result readiness.Result, now time.Time) time.Duration {
	held := result.Status != corev1.ConditionTrue && a.Taint.On(a.node)
	if !held && a.warned {
		a.say(slog.LevelInfo, "held", "the node is no longer held")
	}
	a.warned = a.warned && held
	a.holding.See(held, now)
	beyond, wait := a.holding.Beyond(a.HeldWarning, now)
	switch {
	case wait > 0:
		return wait
	case beyond && !a.warned:
		a.warned = a.tell(ctx, readiness.NotMirrored, fmt.Sprintf("held for more than %s: %s: %s", a.HeldWarning, result.Reason, result.Message))
		if !a.warned {
			return maxBackoff
		}
	}
	return idle
}
