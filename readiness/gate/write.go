package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/readiness"
)

// writeCondition makes the Node bear the condition and returns the Node as it then is. Unchanged content is not written.
//
// The write names the version that was judged. Without that, a leader that was deposed could release a node wrongly:
//
//  1. A judges version 10: all mirrored. It is stopped, and its Lease goes to B.
//  2. A mirror is deleted. B writes False: version 11.
//  3. A goes on and writes True.
//
// With it, 3 is refused (409). What remains is a 2 in which B writes nothing, because the same False stands already, and in
// which nobody else has written to the Node for as long as the Lease lasts: then B corrects A's True as soon as it sees it.
func (g *Gate) writeCondition(lead context.Context, node *corev1.Node, w *watch, result readiness.Result, now time.Time) (*corev1.Node, error) {
	condition, differs := result.Condition(node, g.options.Condition, now)
	if !differs {
		return node, nil
	}
	decision := Decision{Time: now, What: DecidedCondition, Node: node.Name, Status: condition.Status, Reason: condition.Reason, Why: condition.Message}
	if g.options.DryRun {
		g.decided(decision, w)
		return node, nil
	}
	body, err := readiness.ApplyCondition(node, condition)
	if err != nil {
		return node, fmt.Errorf("encoding the condition of node %s: %w", node.Name, err)
	}
	after, err := g.patch(lead, node.Name, types.ApplyPatchType, body, "status")
	if err != nil {
		return node, fmt.Errorf("writing the condition of node %s: %w", node.Name, err)
	}
	g.options.Metrics.ConditionWritten(condition.Reason)
	g.decided(decision, w)
	return w.take(after), nil
}

// release takes the readiness taint from a Node whose condition is True, once in the Node's life: the same patch leaves
// the Node's UID in an annotation.
//
// The list of taints can only be written as a whole, so that the version that was read is named. Without that:
//
//  1. The gate reads version 10 with the taints [readiness].
//  2. Another adds a taint: version 11, [readiness, other].
//  3. The gate writes [], and the other taint is gone.
func (g *Gate) release(lead context.Context, node *corev1.Node, w *watch, result readiness.Result, now time.Time) (*corev1.Node, error) {
	if !g.options.ReleaseTaint || result.Status != corev1.ConditionTrue || !g.options.Taint.On(node) || released(node) {
		return node, nil
	}
	decision := Decision{Time: now, What: DecidedRelease, Node: node.Name, Status: result.Status, Reason: result.Reason, Why: result.Message}
	if g.options.DryRun {
		g.decided(decision, w)
		return node, nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": node.UID, "resourceVersion": node.ResourceVersion,
			"annotations": map[string]string{domain.Released: string(node.UID)},
		},
		"spec": map[string]any{"taints": g.options.Taint.Without(node)},
	})
	if err != nil {
		return node, fmt.Errorf("encoding the release of node %s: %w", node.Name, err)
	}
	after, err := g.patch(lead, node.Name, types.MergePatchType, body)
	if err != nil {
		return node, fmt.Errorf("taking the taint %s from node %s: %w", g.options.Taint, node.Name, err)
	}
	g.options.Metrics.NodeReleased()
	g.decided(decision, w)
	return w.take(after), nil
}

// released tells whether rollcall has taken the taint from this Node object before.
func released(node *corev1.Node) bool { return node.Annotations[domain.Released] == string(node.UID) }

// patch writes as the field manager that owns the condition, also over what others forced into it.
func (g *Gate) patch(lead context.Context, name string, kind types.PatchType, body []byte, subresource ...string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(lead, requestTimeout)
	defer cancel()
	options := metav1.PatchOptions{FieldManager: domain.FieldManager}
	resource := "nodes"
	if kind == types.ApplyPatchType {
		force := true
		options.Force = &force
	}
	if len(subresource) > 0 {
		resource += "/" + subresource[0]
	}
	node, err := g.client.CoreV1().Nodes().Patch(ctx, name, kind, body, options, subresource...)
	if apierrors.IsForbidden(err) {
		g.refusals.Report("patch", resource, "", err)
	}
	return node, err
}
