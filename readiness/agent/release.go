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

// release makes the Node's condition say what holds, and returns when to look again.
func (a *Agent) release(ctx context.Context, expected readiness.Expected, now time.Time) (time.Duration, error) {
	if on := a.node.Status.NodeInfo.BootID; expected.Unknown == "" && on != a.BootID {
		expected = readiness.Expected{Unknown: fmt.Sprintf("the Node shows boot %q, this machine is in boot %q", on, a.BootID)}
	}
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

// warnOfHolding says once, in an Event, that the node has been held for long, and returns when that is due.
func (a *Agent) warnOfHolding(ctx context.Context, result readiness.Result, now time.Time) time.Duration {
	held := result.Status != corev1.ConditionTrue
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
		a.warned = true
		a.tell(ctx, readiness.NotMirrored, fmt.Sprintf("held for more than %s: %s: %s", a.HeldWarning, result.Reason, result.Message))
	}
	return idle
}
