package gate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// poolLabel says which of Karpenter's pools a node is of (sigs.k8s.io/karpenter pkg/apis/v1 NodePoolLabelKey).
const poolLabel = "karpenter.sh/nodepool"

// Show observes for a stream.
func Show(hub *stream.Hub, to *stream.Arrivals) Observer { return shower{hub, to} }

type shower struct {
	hub *stream.Hub
	to  *stream.Arrivals
}

func (s shower) Seen(seen Sight) {
	result := seen.Result
	row := &stream.ComingNode{
		ID: string(seen.Node.UID), Node: seen.Node.Name, NodePool: seen.Node.Labels[poolLabel], Created: seen.Node.CreationTimestamp.Time,
		Held: seen.Held, Warned: seen.Warned, Status: string(result.Status), Reason: result.Reason, Message: result.Message,
		Expected: len(result.Expected), Missing: append([]string(nil), result.WaitingFor...),
	}
	if seen.Settling && result.Status == corev1.ConditionTrue {
		row.Message = "all mirrors are there, and must stand for a moment"
	}
	s.to.Held(row)
}

func (s shower) Left(node string) { s.to.HeldGone(node) }

func (s shower) Decided(d Decision) {
	what := d.What
	if d.DryRun {
		what = "would " + what
	}
	s.hub.Decide(&stream.Decision{
		Time: d.Time, What: what, Object: d.Node, Node: d.Node, Verdict: string(d.Status), Reason: d.Reason, Why: d.Why,
	})
}
