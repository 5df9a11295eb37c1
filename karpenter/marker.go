package karpenter

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// A Marker is what rollcall leaves on a pod that will be lost (DESIGN.md section 5), as JSON in the annotation
// rollcall.dev/at-risk. Its times are in UTC and whole seconds.
type Marker struct {
	Verdict fate.Verdict `json:"verdict"`
	Reason  fate.Reason  `json:"reason"`
	State   State        `json:"state"`
	Cause   string       `json:"cause"`
	// Node is the node that costs the pod: for collateral another than the one it runs on.
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	// Deadline is zero where none is known.
	Deadline time.Time `json:"deadline,omitzero"`
}

// markerFor is the marker of a pod with this fate, whose loss the disruption of the node brings about.
func markerFor(f fate.Fate, node string, d Disruption) Marker {
	m := Marker{Verdict: f.Verdict, Reason: f.Reason, State: d.State, Cause: d.Cause, Node: node, Since: seconds(d.Since)}
	if !d.Deadline.IsZero() {
		m.Deadline = seconds(d.Deadline)
	}
	return m
}

func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// String is the JSON that stands in the annotation. The same marker gives the same bytes.
func (m Marker) String() string {
	text, err := json.Marshal(m)
	if err != nil {
		// Only a year beyond 9999 cannot be written.
		return fmt.Sprintf("{%q:%q}", "error", err)
	}
	return string(text)
}

// ParseMarker reads what String writes. Anything else, be it only a space or a field more, was not written by rollcall
// and is no marker.
func ParseMarker(text string) (Marker, bool) {
	var m Marker
	if json.Unmarshal([]byte(text), &m) != nil || m.String() != text {
		return Marker{}, false
	}
	return m, true
}

// markOf is the text in the pod's annotation, and whether it bears one, valid or not.
func markOf(pod *corev1.Pod) (text string, marked bool) {
	text, marked = pod.Annotations[domain.AtRisk]
	return text, marked
}
