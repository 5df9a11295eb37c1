package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/events"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/readiness"
)

// TaintNotRemoved is the reason of the Event on a Node that keeps its readiness taint though the condition is True.
const TaintNotRemoved = "TaintNotRemoved"

// eventLife is how long the API server keeps an Event by default. What still holds then is told again.
const eventLife = time.Hour

// judgeHolding finds out whether the node is held for longer than the warning allows, and if so why, which it adds to the
// result's message. It returns when that is to be asked again.
func (g *Gate) judgeHolding(lead context.Context, node *corev1.Node, w *watch, result *readiness.Result, now time.Time) time.Duration {
	held, isTrue := g.options.Taint.On(node) && node.DeletionTimestamp == nil, result.Status == corev1.ConditionTrue
	since := now
	if c := readiness.ConditionOf(node, g.options.Condition); c != nil && (c.Status == corev1.ConditionTrue) == isTrue && !c.LastTransitionTime.IsZero() {
		since = c.LastTransitionTime.Time // what was there before this process counts
	}
	w.waiting.See(held && !isTrue, since)
	w.forgotten.See(held && isTrue, since)
	holding := &w.waiting
	if isTrue {
		holding = &w.forgotten
	}
	beyond, wait := holding.Beyond(g.options.HeldWarning, now)
	if !beyond {
		w.causes = nil
		g.hold(w, nil)
		return wait
	}
	w.causes = g.causes.of(lead, result.WaitingFor, w.causes)
	var why []string
	for _, c := range w.causes {
		why = append(why, c.text)
	}
	result.Message = strings.Join(append(why, result.Message), "; ") // what is cut off at its end names pods
	g.hold(w, &long{since: holding.Since(), reason: result.Reason, pods: result.WaitingFor, causes: w.causes})
	return askAgainAfter
}

func (g *Gate) hold(w *watch, l *long) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.long = l
}

// warn says in an Event that the node is held for long; again when the Event's life is over, or for something else.
func (g *Gate) warn(node *corev1.Node, w *watch, result readiness.Result, now time.Time) {
	g.mu.Lock()
	l := w.long
	g.mu.Unlock()
	if l == nil || !g.options.Taint.On(node) {
		return
	}
	reason, message := readiness.NotMirrored, fmt.Sprintf("held for more than %s: %s: %s", g.options.HeldWarning, result.Reason, result.Message)
	switch {
	case result.Status == corev1.ConditionTrue:
		reason, message = TaintNotRemoved, g.unremoved(node, result)
	case result.Reason == readiness.MirrorMissing && len(w.causes) == 0:
		message += ". What the API server says to the kubelet is in the kubelet's log: a quota, a LimitRange, Pod Security, an admission policy or webhook, or a priority class may refuse the mirror"
	}
	turn := strconv.Itoa(int(now.Sub(l.since) / eventLife))
	if !w.says("warning", reason+strings.Join(l.pods, ",")+turn) {
		return
	}
	g.herald.Tell(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      events.Name(node.Name, node.UID, "", reason, strings.Join(l.pods, ","), turn),
		},
		InvolvedObject: *events.NodeReference(node),
		Reason:         reason, Type: corev1.EventTypeWarning, Message: message,
	})
	g.decided(Decision{Time: now, What: DecidedHeld, Node: node.Name, Status: result.Status, Reason: result.Reason, Why: message}, w)
}

// unremoved says who should have taken the taint away.
func (g *Gate) unremoved(node *corev1.Node, result readiness.Result) string {
	message := fmt.Sprintf("the condition %s has been True (%s) for more than %s, and the taint %s is still there: ",
		g.options.Condition, result.Reason, g.options.HeldWarning, g.options.Taint)
	if released(node) {
		return message + "rollcall took it away once, and somebody put it back"
	}
	return message + "is the Node Readiness Controller there, with its rule? Without it, --release-taint has rollcall take the taint away"
}

// held is what the metrics say of nodes that are held for long, those that are so for longest first.
func (g *Gate) held() metrics.Held {
	type row struct {
		node string
		*long
	}
	var rows []row
	g.mu.Lock()
	for name, w := range g.known {
		if w.long != nil { // a long is replaced as a whole, never changed
			rows = append(rows, row{name, w.long})
		}
	}
	g.mu.Unlock()
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.node, b.node)) })
	held := metrics.Held{Nodes: map[string]int{}}
	for _, r := range rows {
		held.Nodes[r.reason]++
		if len(r.pods) == 0 {
			held.Pods = append(held.Pods, metrics.HeldPod{Node: r.node, Reason: r.reason})
		}
		for _, pod := range r.pods {
			namespace, name, _ := strings.Cut(pod, "/")
			held.Pods = append(held.Pods, metrics.HeldPod{Node: r.node, Namespace: namespace, Pod: name, Reason: r.reason, Cause: causeIn(r.causes, namespace)})
		}
	}
	return held
}
