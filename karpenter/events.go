package karpenter

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/events"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// Reasons of Events.
const (
	WillBeLost     = "WillBeLost"     // on a pod with verdict Lost, and on its Node as a summary
	WillBeStranded = "WillBeStranded" // on a pod with verdict Stranded, where --mark asks for it
	MayBeLost      = "MayBeLost"      // on a pod with verdict Unsure, where --mark asks for it
	PodLost        = "Lost"           // on a marked pod that was really lost
)

// eventWindow makes signals that come and go one thing to tell: the same cause on the same node within it gives the
// same Event. A flapping taint must not bury what else is said of the pod.
const eventWindow = 10 * time.Minute

// A herald tells people of losses by Events.
type herald struct{ *events.Herald }

// willBe tells that a marked pod is at risk.
func (h herald) willBe(f fate.Fate, node *corev1.Node, m Marker) {
	reason := map[fate.Verdict]string{fate.Lost: WillBeLost, fate.Stranded: WillBeStranded, fate.Unsure: MayBeLost}[f.Verdict]
	if reason == "" {
		return
	}
	name := events.Name(f.Pod.Name, f.Pod.UID, events.NodeUID(node), reason, m.Cause, m.window())
	h.Tell(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: f.Pod.Namespace, Name: name},
		InvolvedObject: podReference(f.Pod), Related: events.NodeReference(node),
		Reason: reason, Type: corev1.EventTypeWarning,
		Message: fmt.Sprintf("%s with node %s (%s %s%s). %s", verdictPhrase(f.Verdict), m.Node, m.State, m.Cause, m.until(), f.Message),
	})
}

// summary tells on the Node which pods it costs.
func (h herald) summary(node *corev1.Node, d Disruption, lost []string) {
	if len(lost) == 0 {
		return
	}
	m := markerFor(fate.Fate{}, node.Name, d)
	subject := fmt.Sprintf("%d pods will be lost with this node", len(lost))
	if len(lost) == 1 {
		subject = "1 pod will be lost with this node"
	}
	h.Tell(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      events.Name(node.Name, events.NodeUID(node), "", WillBeLost, d.Cause, m.window()),
		},
		InvolvedObject: *events.NodeReference(node),
		Reason:         WillBeLost, Type: corev1.EventTypeWarning,
		Message: fmt.Sprintf("%s (%s %s%s): %s", subject, m.State, d.Shown(), m.until(), strings.Join(lost, ", ")),
	})
}

// lost tells that a marked pod is gone for good.
func (h herald) lost(pod *corev1.Pod, m Marker) {
	h.Tell(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, Name: events.Name(pod.Name, pod.UID, "", PodLost, "", "")},
		InvolvedObject: podReference(pod),
		Related:        &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: m.Node},
		Reason:         PodLost, Type: corev1.EventTypeWarning,
		Message: fmt.Sprintf("Lost with node %s (%s %s, %s): nothing makes it again", m.Node, m.State, m.Cause, m.Reason),
	})
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

func podReference(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}
