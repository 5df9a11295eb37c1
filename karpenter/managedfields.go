package karpenter

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taintTime is the signal time of a taint on its node, and whether it is only an upper bound. Zero where nothing tells.
func taintTime(taint corev1.Taint, node *corev1.Node) (since time.Time, estimated bool) {
	// 1. What the taint says itself.
	if taint.TimeAdded != nil {
		return taint.TimeAdded.Time, false
	}
	if added, ok := unixValue(taint); ok && taint.Key == ToBeDeletedTaint {
		return added, false
	}
	// 2. Each owner of the list wrote, at its time or before, the list as it is now (an atomic list has no other owners
	//    left), so the earliest of them is the nearest upper bound.
	for _, entry := range node.ManagedFields {
		if entry.Time == nil || !OwnsTaints(entry) {
			continue
		}
		if since.IsZero() || entry.Time.Time.Before(since) {
			since = entry.Time.Time
		}
	}
	return since, !since.IsZero()
}

// OwnsTaints tells whether the managedFields entry of a Node owns spec.taints.
func OwnsTaints(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Spec struct {
			Taints json.RawMessage `json:"f:taints"`
		} `json:"f:spec"`
	}
	return json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && fields.Spec.Taints != nil
}
