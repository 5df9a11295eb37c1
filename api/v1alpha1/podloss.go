// Package v1alpha1 owns the objects that rollcall keeps in a cluster: PodLoss, the record of one pod's loss. It has types
// and names only. The objects travel as unstructured ones, so that no generated client is needed; Parse and Object convert.
package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

// GroupVersion of all objects here.
var GroupVersion = schema.GroupVersion{Group: domain.Name, Version: "v1alpha1"}

// PodLosses is the resource by which PodLoss objects are asked for.
var PodLosses = GroupVersion.WithResource("podlosses")

// PodLossKind is the kind of a PodLoss.
const PodLossKind = "PodLoss"

// A PodLoss says what became of one pod that was marked as at risk (DESIGN.md section 5). It lives in the pod's own
// namespace, so that its readers are the namespace's readers, and it outlives the pod.
type PodLoss struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   PodLossSpec   `json:"spec"`
	Status PodLossStatus `json:"status"`
}

// PodLossSpec is what was known when the pod was marked, kept up to date for as long as it bears the marker.
type PodLossSpec struct {
	Pod PodReference `json:"pod"`
	// Node is the node that costs the pod; RunsOn the one that it runs on, where that is another.
	Node   string `json:"node"`
	RunsOn string `json:"runsOn,omitempty"`
	// Verdict, Reason, State and Cause are the marker's.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	State   string `json:"state"`
	Cause   string `json:"cause"`
	// Since is the signal time, Deadline the moment after which pods are killed, where one is known.
	Since    metav1.Time  `json:"since"`
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// Owner is the controller of the pod, as Kind/name; empty for an ownerless pod.
	Owner string `json:"owner,omitempty"`
	// Manifest makes an ownerless pod again: apply it as it is.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// PodReference names a pod of the same namespace, for ever: a later pod of that name has another UID.
type PodReference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// LossState is how far a loss has come.
type LossState string

// The states. Closed is final; a Withdrawn record opens again when its pod is marked again.
const (
	Open      LossState = "Open"      // the pod is at risk and lives
	Closed    LossState = "Closed"    // the pod is lost
	Withdrawn LossState = "Withdrawn" // the marker was cleared, or the pod finished by itself
)

// PodLossStatus is what became of the pod.
type PodLossStatus struct {
	State LossState `json:"state"`
	// LostAt is when the pod was gone or had failed by the disruption. Only a Closed record has it.
	LostAt *metav1.Time `json:"lostAt,omitempty"`
	// LostAtEstimated: the pod was gone when a controller started to look, so that LostAt is only an upper bound.
	LostAtEstimated bool `json:"lostAtEstimated,omitempty"`
	// WithdrawnAt is when a Withdrawn record was withdrawn.
	WithdrawnAt *metav1.Time `json:"withdrawnAt,omitempty"`
}

// Parse reads a PodLoss as the API server sends it.
func Parse(u *unstructured.Unstructured) (*PodLoss, error) {
	text, err := json.Marshal(u)
	if err != nil {
		return nil, fmt.Errorf("reading PodLoss %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	loss := &PodLoss{}
	if err := json.Unmarshal(text, loss); err != nil {
		return nil, fmt.Errorf("reading PodLoss %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return loss, nil
}

// Object makes of a PodLoss what the dynamic client sends.
func (l *PodLoss) Object() (*unstructured.Unstructured, error) {
	l.APIVersion, l.Kind = GroupVersion.String(), PodLossKind
	text, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("writing PodLoss %s/%s: %w", l.Namespace, l.Name, err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("writing PodLoss %s/%s: %w", l.Namespace, l.Name, err)
	}
	return u, nil
}
