package karpenter

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/refusals"
)

// interruptionReasons are the reasons of the Events with which Karpenter says what interrupted a node, the most telling
// first (karpenter-provider-aws pkg/controllers/interruption/events; facts/disruption.md section 1.4). Not among them is
// SpotRebalanceRecommendation, upon which Karpenter does nothing.
var interruptionReasons = []string{
	"SpotInterrupted",
	"CapacityReservationInstanceInterrupted",
	"InstanceStopping",
	"InstanceTerminating",
	"InstanceUnhealthy",
	"TerminatingOnInterruption",
}

const (
	// eventsSettle is how long after a NodeClaim's deletion its Events are read: Karpenter writes them in the background.
	eventsSettle = 2 * time.Second
	// eventsBefore bounds how much older than the deletion an Event may be that explains it. Events stay for an hour.
	eventsBefore       = 5 * time.Minute
	eventsReadTimeout  = 2 * time.Second
	eventsRead         = 200 // at most, of one object: a Node has those of its kubelet too
	interruptionsKnown = 4096
)

// interruptions remembers what Karpenter's own Events say interrupted a NodeClaim. Each NodeClaim is asked about once;
// nothing but what is shown and, by --notice, a deadline depends on it. Safe for concurrent use.
type interruptions struct {
	client   kubernetes.Interface
	refusals *refusals.Log
	known    *lru.Cache // of reasons by the NodeClaim's UID; has a lock of its own
}

func newInterruptions(client kubernetes.Interface, refusals *refusals.Log) *interruptions {
	return &interruptions{client: client, refusals: refusals, known: lru.New(interruptionsKnown)}
}

// of is the reason from memory, empty where none is known.
func (i *interruptions) of(claim *karpv1.NodeClaim) (reason string, asked bool) {
	known, asked := i.known.Get(claim.UID)
	reason, _ = known.(string)
	return reason, asked
}

// ask reads the Events of a NodeClaim that is being deleted and of its Node, unless they were read before. That they cannot
// be read is no error: it is told, and not tried again.
func (i *interruptions) ask(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) (reason string) {
	if reason, asked := i.of(claim); asked {
		return reason
	}
	ctx, cancel := context.WithTimeout(ctx, eventsReadTimeout)
	defer cancel()
	events := append(i.read(ctx, "NodeClaim", claim.Name), i.read(ctx, "Node", node.Name)...)
	reason = interruption(events, claim, node)
	i.known.Add(claim.UID, reason)
	return reason
}

// read lists the Events of one object; none where they cannot be read, which it tells.
func (i *interruptions) read(ctx context.Context, kind, name string) []corev1.Event {
	selector := fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}
	list, err := i.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: selector.String(), Limit: eventsRead})
	switch {
	case apierrors.IsForbidden(err):
		i.refusals.ReportIn(metav1.NamespaceDefault, "list", "events", "what interrupted a node is not known, and nothing but what is shown depends on it", err)
	case err != nil:
		slog.Warn("what interrupted a node may not be known: Events could not be read", "of", kind, "name", name, "error", err)
	default:
		return list.Items
	}
	return nil
}

// interruption is the most telling reason among the Events of a NodeClaim and its Node, empty for none. It is pure.
func interruption(events []corev1.Event, claim *karpv1.NodeClaim, node *corev1.Node) string {
	best := len(interruptionReasons)
	for _, event := range events {
		rank := slices.Index(interruptionReasons, event.Reason)
		if rank < 0 || rank >= best || !isOf(event.InvolvedObject, claim, node) {
			continue
		}
		if at := eventTime(event); claim.DeletionTimestamp == nil || at.Before(claim.DeletionTimestamp.Add(-eventsBefore)) {
			continue
		}
		best = rank
	}
	if best == len(interruptionReasons) {
		return ""
	}
	return interruptionReasons[best]
}

// isOf tells whether the reference is to the NodeClaim or the Node, and not to a former one of its name. One without a UID
// is taken by its name.
func isOf(object corev1.ObjectReference, claim *karpv1.NodeClaim, node *corev1.Node) bool {
	uid := claim.UID
	if object.Kind == "Node" {
		uid = node.UID
	}
	return object.UID == "" || object.UID == uid
}

// eventTime is when an Event was last seen, by whichever of its times its writer filled in.
func eventTime(event corev1.Event) time.Time {
	latest := event.CreationTimestamp.Time
	for _, at := range []time.Time{event.EventTime.Time, event.FirstTimestamp.Time, event.LastTimestamp.Time} {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// reconcileClaim finds out what interrupted the node of that name, and has the node looked at again if that is known.
func (c *Controller) reconcileClaim(lead context.Context, name string) {
	node, err := c.informers.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return // it is gone, and so is the question
	}
	claim := c.claimOf(node)
	if claim == nil || !isDeleting(claim) {
		return
	}
	if _, asked := c.interruptions.of(claim); asked {
		return
	}
	if reason := c.interruptions.ask(lead, claim, node); reason != "" {
		slog.Info("what interrupted a node is known", "node", name, "nodeClaim", claim.Name, "interruption", reason)
		c.enqueueNode(name)
	}
}
