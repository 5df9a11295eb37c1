package karpenter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// Reasons of Events.
const (
	WillBeLost     = "WillBeLost"     // on a pod with verdict Lost, and on its Node as a summary
	WillBeStranded = "WillBeStranded" // on a pod with verdict Stranded, where --mark asks for it
	MayBeLost      = "MayBeLost"      // on a pod with verdict Unsure, where --mark asks for it
	PodLost        = "Lost"           // on a marked pod that was really lost
)

const (
	// eventWindow makes signals that come and go one thing to tell: the same cause on the same node within it gives the
	// same Event. A flapping taint must not bury what else is said of the pod.
	eventWindow = 10 * time.Minute
	// eventBacklog bounds what waits to be sent. Marks never wait for Events: what does not fit is counted and dropped.
	eventBacklog = 2048
	// eventsRemembered keeps an unchanged node from asking the server again and again whether its Events exist.
	eventsRemembered = 16384
	eventSenders     = 2
	eventTimeout     = 10 * time.Second
	maxEventNote     = 1024 // bytes, the API server's limit
)

// A herald tells people of losses by Events, and never keeps anybody waiting. An Event's name follows from what it says,
// so that a repeat, also by another replica or after a restart, is the same Event (the API server answers
// AlreadyExists).
type herald struct {
	client   kubernetes.Interface
	instance string
	clock    func() time.Time
	refusals *refusals
	dry      bool

	queue   chan *corev1.Event
	sent    *lru.Cache // of names
	dropped atomic.Int64
	failed  atomic.Int64
}

func newHerald(client kubernetes.Interface, instance string, clock func() time.Time, refusals *refusals, dry bool) *herald {
	return &herald{
		client: client, instance: instance, clock: clock, refusals: refusals, dry: dry,
		queue: make(chan *corev1.Event, eventBacklog), sent: lru.New(eventsRemembered),
	}
}

// run sends what is told until stop closes, then what still waits, and gives up when the context ends.
func (h *herald) run(ctx context.Context, stop <-chan struct{}) {
	var senders sync.WaitGroup
	for range eventSenders {
		senders.Go(func() { h.work(ctx, stop) })
	}
	senders.Wait()
}

func (h *herald) work(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case event := <-h.queue:
			h.send(ctx, event)
			continue
		case <-ctx.Done():
			return
		case <-stop:
		}
		for ctx.Err() == nil {
			select {
			case event := <-h.queue:
				h.send(ctx, event)
			default:
				return
			}
		}
		return
	}
}

// willBe tells that a marked pod is at risk.
func (h *herald) willBe(f fate.Fate, node *corev1.Node, m Marker) {
	reason := map[fate.Verdict]string{fate.Lost: WillBeLost, fate.Stranded: WillBeStranded, fate.Unsure: MayBeLost}[f.Verdict]
	if reason == "" {
		return
	}
	name := eventName(f.Pod.Name, f.Pod.UID, nodeUID(node), reason, m.Cause, m.window())
	h.tell(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: f.Pod.Namespace, Name: name},
		InvolvedObject: podReference(f.Pod), Related: nodeReference(node),
		Reason: reason, Type: corev1.EventTypeWarning,
		Message: fmt.Sprintf("%s with node %s (%s %s%s). %s", verdictPhrase(f.Verdict), m.Node, m.State, m.Cause, m.until(), f.Message),
	})
}

// summary tells on the Node which pods it costs.
func (h *herald) summary(node *corev1.Node, d Disruption, lost []string) {
	if len(lost) == 0 {
		return
	}
	m := markerFor(fate.Fate{}, node.Name, d)
	subject := fmt.Sprintf("%d pods will be lost with this node", len(lost))
	if len(lost) == 1 {
		subject = "1 pod will be lost with this node"
	}
	h.tell(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      eventName(node.Name, nodeUID(node), "", WillBeLost, d.Cause, m.window()),
		},
		InvolvedObject: *nodeReference(node),
		Reason:         WillBeLost, Type: corev1.EventTypeWarning,
		Message: fmt.Sprintf("%s (%s %s%s): %s", subject, m.State, d.Shown(), m.until(), strings.Join(lost, ", ")),
	})
}

// lost tells that a marked pod is gone for good.
func (h *herald) lost(pod *corev1.Pod, m Marker) {
	h.tell(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, Name: eventName(pod.Name, pod.UID, "", PodLost, "", "")},
		InvolvedObject: podReference(pod),
		Related:        &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: m.Node},
		Reason:         PodLost, Type: corev1.EventTypeWarning,
		Message: fmt.Sprintf("Lost with node %s (%s %s, %s): nothing makes it again", m.Node, m.State, m.Cause, m.Reason),
	})
}

// tell queues an Event that was not told before.
func (h *herald) tell(event *corev1.Event) {
	key := event.Namespace + "/" + event.Name
	if _, known := h.sent.Get(key); known {
		return
	}
	h.sent.Add(key, nil)
	now := metav1.NewTime(h.clock())
	event.FirstTimestamp, event.LastTimestamp, event.Count = now, now, 1
	event.Source = corev1.EventSource{Component: domain.FieldManager}
	event.ReportingController, event.ReportingInstance = domain.Name+"/controller", h.instance
	event.Message = shorten(event.Message, maxEventNote)
	select {
	case h.queue <- event:
	default:
		h.sent.Remove(key) // the next reconcile of its node may find room
		h.dropped.Add(1)
		slog.Warn("an Event was dropped, too many wait", "reason", event.Reason, "object", event.InvolvedObject.Name, "dropped", h.dropped.Load())
	}
}

// send creates the Event. A failure is logged and counted; the Event is then only tried again when its node is looked at
// again.
func (h *herald) send(ctx context.Context, event *corev1.Event) {
	if h.dry {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := h.client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: domain.FieldManager})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		slog.Debug("an Event has no namespace to go to", "namespace", event.Namespace, "object", event.InvolvedObject.Name)
	case apierrors.IsForbidden(err):
		h.refusals.report("create", "events", event.Namespace, err)
	default:
		h.sent.Remove(event.Namespace + "/" + event.Name)
		slog.Warn("an Event could not be written", "reason", event.Reason, "object", event.InvolvedObject.Name, "error", err)
	}
	h.failed.Add(1)
}

// window is the part of an Event's name that tells one signal from a later one.
func (m Marker) window() string { return m.Since.Truncate(eventWindow).Format(time.RFC3339) }

func (m Marker) until() string {
	if m.Deadline.IsZero() {
		return ""
	}
	return ", until " + m.Deadline.Format(time.RFC3339)
}

func verdictPhrase(v fate.Verdict) string {
	switch v {
	case fate.Lost:
		return "Will be lost"
	case fate.Stranded:
		return "Will find no other place"
	default:
		return "May be lost"
	}
}

// eventName is the name of an Event about an object: its name, as client-go's recorder has it, and a hash.
func eventName(object string, uid, related types.UID, parts ...string) string {
	sum := sha256.New()
	for _, part := range append([]string{string(uid), string(related)}, parts...) {
		fmt.Fprintf(sum, "%d:%s;", len(part), part)
	}
	const room = 253 - 1 - 20 // a name's limit, the dot, the hash
	return fmt.Sprintf("%s.%s", strings.TrimRight(object[:min(len(object), room)], ".-"), hex.EncodeToString(sum.Sum(nil)[:10]))
}

func podReference(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

func nodeReference(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: nodeUID(node)}
}

// nodeUID is the Node's UID; of a Node that no longer exists its name, as the kubelet has it in Events.
func nodeUID(node *corev1.Node) types.UID {
	if node.UID == "" {
		return types.UID(node.Name)
	}
	return node.UID
}

// shorten cuts text to the limit in bytes, at a rune's end.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}
