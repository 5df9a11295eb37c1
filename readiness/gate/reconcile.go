package gate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/readiness"
)

const (
	// calm is how long the absence of a first answer may last before it is written to a Node: most agents answer sooner.
	calm = 2 * time.Second
	// looksAtMost bounds how often one reconcile looks again because somebody else wrote to the Node meanwhile. A kubelet
	// that joins does so several times a second, for a few seconds.
	looksAtMost = 5
	// askAgainAfter is how soon what no watch tells is asked again: whether a right was granted, why a mirror is refused.
	askAgainAfter = time.Minute
	// requestTimeout bounds one request. The API server answers in milliseconds or is in trouble; the queue comes back then.
	requestTimeout = 10 * time.Second
)

// Reconcile makes one node's condition right and, where asked to, takes the taint away.
func (g *Gate) Reconcile(lead context.Context, key queue.Key) (again time.Duration, err error) {
	cached, err := g.nodes.Get(key.Name)
	if apierrors.IsNotFound(err) {
		g.forget(key.Name)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading node %s: %w", key.Name, err)
	}
	w := g.watchOf(cached)
	node := w.latest(cached)
	for range looksAtMost {
		if !g.concerns(node) {
			g.forget(node.Name)
			return 0, nil
		}
		again, err = g.look(lead, node, w)
		if !apierrors.IsConflict(err) {
			break
		}
		// Somebody wrote to the Node since it was seen: it must be judged as it is now. The watch may tell of that write
		// late, or not at all to this gate, where it was a heartbeat.
		node, err = g.live(lead, node.Name)
		if err != nil {
			break
		}
		if node.UID != w.uid {
			return 0, nil // another of that name, which the watch brings
		}
		w.take(node)
	}
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil // the watch tells, too
	case apierrors.IsForbidden(err):
		return askAgainAfter, nil // and was reported
	}
	return again, err
}

func (g *Gate) live(lead context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(lead, requestTimeout)
	defer cancel()
	node, err := g.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		g.refusals.Report("get", "nodes", "", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s again: %w", name, err)
	}
	return node, nil
}

// look judges one version of the Node and writes what follows. A conflict means that the Node has changed since.
func (g *Gate) look(lead context.Context, node *corev1.Node, w *watch) (again time.Duration, err error) {
	now := g.options.Clock()
	expected := readiness.Published(node)
	result := readiness.Evaluate(node, expected, g.podsOf(expected))
	if wait := g.holdBack(node, w, result, now); wait > 0 {
		g.show(node, w, result, true)
		return wait, nil
	}
	again = g.judgeHolding(lead, node, w, &result, now)
	node, err = g.writeCondition(lead, node, w, result, now)
	if err == nil {
		node, err = g.release(lead, node, w, result, now)
	}
	g.warn(node, w, result, now)
	g.show(node, w, result, false)
	return again, err
}

// podsOf returns the pods that have the names of expected ones, wherever they run.
func (g *Gate) podsOf(expected readiness.Expected) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, static := range expected.Pods {
		pod, err := g.pods.Pods(static.Namespace).Get(static.Name)
		if err == nil { // a cache knows no other error than that it has none
			pods = append(pods, pod)
		}
	}
	return pods
}

// holdBack returns for how long nothing is to be written yet; what stands is left as it is.
func (g *Gate) holdBack(node *corev1.Node, w *watch, result readiness.Result, now time.Time) time.Duration {
	// 1. All mirrors must have stood for a while.
	if wait := w.settling.Wait(result, g.options.Settle, now); wait > 0 {
		return wait
	}
	// 2. A first answer may take a moment. One that counts no more, as after a reboot, is taken back at once.
	if result.Reason == readiness.KubeletNotReady && readiness.ConditionOf(node, g.options.Condition) == nil {
		return w.since.Add(calm).Sub(now)
	}
	return 0
}

// show tells the observer what is true of the node.
func (g *Gate) show(node *corev1.Node, w *watch, result readiness.Result, settling bool) {
	g.mu.Lock()
	long := w.long
	g.mu.Unlock()
	since := w.waiting.Since()
	if since.IsZero() {
		since = w.forgotten.Since()
	}
	g.options.Observer.Seen(Sight{
		Node: node, Result: result, Settling: settling,
		Held: g.options.Taint.On(node), HeldSince: since, Warned: long != nil, Released: released(node),
	})
}

// decided logs what was done and tells the observer; in a dry run what would have been, once.
func (g *Gate) decided(d Decision, w *watch) {
	d.DryRun = g.options.DryRun
	if d.DryRun && !w.says(d.What, string(d.Status)+d.Reason+d.Why) {
		return
	}
	message := map[string]string{
		DecidedCondition: "condition written", DecidedRelease: "node released", DecidedHeld: "a node is held for long",
	}[d.What]
	if d.DryRun {
		message = "would be: " + message
	}
	level := slog.LevelInfo
	if d.What == DecidedHeld {
		level = slog.LevelWarn
	}
	slog.Log(context.Background(), level, message, "node", d.Node, "status", d.Status, "reason", d.Reason, "why", d.Why)
	g.options.Observer.Decided(d)
}
