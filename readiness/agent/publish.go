package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/refusals"
	"github.com/rollcall-dev/rollcall/readiness"
)

// Manager is the field manager of the annotation. The condition has another: who applies one of them must not lose the
// other.
const Manager = "rollcall-agent"

// publish writes the annotation where the one that stands says something else, and returns when to look again.
func (a *Agent) publish(ctx context.Context, expected readiness.Expected, now time.Time) (time.Duration, error) {
	if expected.Unknown != "" {
		return idle, nil
	}
	value, err := expected.Encode(a.Identity)
	if err != nil {
		return idle, err
	}
	standing, there := a.node.Annotations[readiness.StaticPodsAnnotation]
	if there && sameContent(standing, value) {
		a.published = standing
		return idle, nil
	}
	if a.overwritten(standing, there) {
		a.tell(ctx, "StaticPodsOverwritten", a.accuse(standing))
		if wait := a.restore.Sub(now); wait > 0 {
			return wait, nil
		}
		a.restore = now.Add(quarrel)
	}
	body, err := readiness.ApplySet(a.node, value)
	if err != nil {
		return 0, err
	}
	node, err := a.API.ApplyStatus(ctx, Manager, body)
	if err != nil {
		return 0, err
	}
	a.published = value
	a.see(node)
	a.Log.Info("published", "source", expected.Source, "pods", len(expected.Pods), "ignored", len(expected.Ignored))
	return idle, nil
}

// sameContent compares what two annotations say, whoever wrote them and when.
func sameContent(a, b string) bool {
	x, _, err := readiness.Decode(a)
	if err != nil {
		return false
	}
	y, _, err := readiness.Decode(b)
	return err == nil && x.Same(&y)
}

// overwritten tells whether somebody else wrote what stands: after this agent did, or before it came, by another hand than
// an agent's.
func (a *Agent) overwritten(standing string, there bool) bool {
	if a.published != "" {
		return standing != a.published
	}
	return there && writer(a.node) != Manager
}

// accuse says who wrote what stands.
func (a *Agent) accuse(standing string) string {
	by := writer(a.node)
	_, identity, err := readiness.Decode(standing)
	switch {
	case by == Manager && err == nil:
		if identity == a.Identity {
			identity += ", as this one is called"
		}
		return "another rollcall-agent (" + identity + ") publishes other static pods for this node than " + a.Identity +
			" does: only one may run on a node, with one configuration"
	case by == "":
		return "somebody removed the annotation " + readiness.StaticPodsAnnotation + "; it is written again"
	}
	return "the annotation " + readiness.StaticPodsAnnotation + " was written by " + by + ", not by rollcall-agent; it is written again"
}

// writer returns the field manager that owns the annotation, or "".
func writer(node *corev1.Node) string {
	for _, entry := range node.ManagedFields {
		if entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+readiness.StaticPodsAnnotation+`"`) {
			return entry.Manager
		}
	}
	return ""
}

// say logs a message on a subject, once until it changes.
func (a *Agent) say(level slog.Level, subject, message string) {
	if a.said[subject] != message {
		a.said[subject] = message
		a.Log.Log(context.Background(), level, message, "about", subject)
	}
}

// failed says what went wrong and what to do about it.
func (a *Agent) failed(doing string, err error) {
	message := doing + ": " + err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		return
	case apierrors.IsForbidden(err) && refusals.ByAdmission(err):
		message += "; no role can give that: see the policy or webhook that the error names"
	case apierrors.IsForbidden(err):
		message += "; the agent needs to list and watch nodes, to patch nodes/status and to create events in namespace default; with --standalone also to get nodes, and to list and watch pods"
	case apierrors.IsUnauthorized(err):
		message += "; the API server does not accept the agent's token"
	}
	a.say(slog.LevelError, doing, message)
}

// telling is what an Event on the Node said last.
type telling struct {
	message string
	at      time.Time
}

// eventLife is how long the API server keeps an Event by default. What happens again after that is told again.
const eventLife = time.Hour

// tell logs a warning and leaves it as an Event on the Node, once in the Event's life until it changes. It returns whether
// it is told; where not, it may be tried again.
func (a *Agent) tell(ctx context.Context, reason, message string) bool {
	now := metav1.NewTime(a.Now())
	if told := a.told[reason]; told.message == message && now.Sub(told.at) < eventLife {
		return true
	}
	if a.told[reason].message == message {
		delete(a.said, reason)
	}
	a.say(slog.LevelWarn, reason, message)
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: a.Node + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Node", Name: a.Node, UID: types.UID(a.Node), // as the kubelet does: kubectl describe looks for it
		},
		Reason: reason, Message: message, Type: corev1.EventTypeWarning, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: Manager, Host: a.Node}, ReportingController: domain.Name + "/agent", ReportingInstance: a.Identity,
	}
	if err := a.API.CreateEvent(ctx, event); err != nil {
		a.failed("writing an Event", err)
		return false
	}
	a.told[reason] = telling{message, now.Time}
	return true
}
