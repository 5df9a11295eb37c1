// Package events owns the sending of Kubernetes Events: who is told what is the business of those who make them. Nobody
// ever waits for an Event.
package events

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

const (
	// backlog bounds what waits to be sent. Other writes never wait for Events: what does not fit is counted and dropped.
	backlog = 2048
	// remembered keeps what did not change from asking the server again and again whether its Events exist.
	remembered = 16384
	senders    = 2
	timeout    = 10 * time.Second
	maxNote    = 1024 // bytes, the API server's limit
)

// Options say for whom Events are sent.
type Options struct {
	Client kubernetes.Interface
	// Instance names this process in its Events.
	Instance string
	Clock    func() time.Time
	// Refused hears of missing rights.
	Refused func(verb, resource, namespace string, err error)
	// Dropped and Failed hear of each Event that was not sent, and that the API server did not take. Safe for concurrent use.
	Dropped, Failed func()
	// DryRun sends nothing.
	DryRun bool
}

// A Herald tells people by Events, and never keeps anybody waiting. An Event's name follows from what it says (Name), so
// that a repeat, also by another replica or after a restart, is the same Event: the API server answers AlreadyExists.
// Safe for concurrent use.
type Herald struct {
	options Options
	queue   chan *corev1.Event
	sent    *lru.Cache // of names
}

// New makes a Herald that sends nothing until it runs.
func New(o Options) *Herald {
	return &Herald{options: o, queue: make(chan *corev1.Event, backlog), sent: lru.New(remembered)}
}

// Run sends what is told until stop closes, then what still waits, and gives up when the context ends.
func (h *Herald) Run(ctx context.Context, stop <-chan struct{}) {
	var working sync.WaitGroup
	for range senders {
		working.Go(func() { h.work(ctx, stop) })
	}
	working.Wait()
}

func (h *Herald) work(ctx context.Context, stop <-chan struct{}) {
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

// Tell queues an Event that was not told before, and fills in what all of rollcall's Events have in common. The Event is
// the Herald's from then on.
func (h *Herald) Tell(event *corev1.Event) {
	key := event.Namespace + "/" + event.Name
	if _, known := h.sent.Get(key); known {
		return
	}
	h.sent.Add(key, nil)
	now := metav1.NewTime(h.options.Clock())
	event.FirstTimestamp, event.LastTimestamp, event.Count = now, now, 1
	event.Source = corev1.EventSource{Component: domain.FieldManager}
	event.ReportingController, event.ReportingInstance = domain.Name+"/controller", h.options.Instance
	event.Message = shorten(event.Message, maxNote)
	select {
	case h.queue <- event:
	default:
		h.sent.Remove(key) // the next reconcile of its object may find room
		h.options.Dropped()
		slog.Warn("an Event was dropped, too many wait", "reason", event.Reason, "object", event.InvolvedObject.Name)
	}
}

// send creates the Event. A failure is logged and counted; the Event is then only tried again when it is told again.
func (h *Herald) send(ctx context.Context, event *corev1.Event) {
	if h.options.DryRun {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := h.options.Client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: domain.FieldManager})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		slog.Debug("an Event has no namespace to go to", "namespace", event.Namespace, "object", event.InvolvedObject.Name)
	case apierrors.IsForbidden(err):
		h.options.Refused("create", "events", event.Namespace, err)
	default:
		h.sent.Remove(event.Namespace + "/" + event.Name)
		slog.Warn("an Event could not be written", "reason", event.Reason, "object", event.InvolvedObject.Name, "error", err)
	}
	h.options.Failed()
}

// Name is the name of an Event about an object: its name, as client-go's recorder has it, and a hash of the rest.
func Name(object string, uid, related types.UID, parts ...string) string {
	sum := sha256.New()
	for _, part := range append([]string{string(uid), string(related)}, parts...) {
		fmt.Fprintf(sum, "%d:%s;", len(part), part)
	}
	const room = 253 - 1 - 20 // a name's limit, the dot, the hash
	return fmt.Sprintf("%s.%s", strings.TrimRight(object[:min(len(object), room)], ".-"), hex.EncodeToString(sum.Sum(nil)[:10]))
}

// NodeReference is what an Event about the Node refers to. A Node that no longer exists has its name for a UID, as the
// kubelet has it in Events.
func NodeReference(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: NodeUID(node)}
}

// NodeUID is the Node's UID; of a Node that no longer exists its name.
func NodeUID(node *corev1.Node) types.UID {
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
