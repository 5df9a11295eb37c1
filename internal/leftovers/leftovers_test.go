package leftovers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A condition is rollcall's by its name, or because the controller or the agent wrote its status last.
func TestConditions(t *testing.T) {
	fields := func(manager, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(raw)}
	}
	const (
		ours  = `{"f:status":{"f:conditions":{"k:{\"type\":\"example.com/Own\"}":{".":{},"f:status":{}}}}}`
		ready = `{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Ready\"}":{".":{},"f:status":{}}}}}`
		part  = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:message":{}}}}}`
		notes = `{"f:metadata":{"f:annotations":{"f:rollcall.dev/static-pods":{}}}}`
	)
	for name, tc := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   []string
	}{
		"by name":            {nil, []string{"example.com/Named"}},
		"by the controller":  {[]metav1.ManagedFieldsEntry{fields("rollcall", ours), fields("kubelet", ready)}, []string{"example.com/Named", "example.com/Own"}},
		"by the agent":       {[]metav1.ManagedFieldsEntry{fields("rollcall-agent", notes), fields("rollcall-agent", ours)}, []string{"example.com/Named", "example.com/Own"}},
		"by another":         {[]metav1.ManagedFieldsEntry{fields("rollcall-fan", ours)}, []string{"example.com/Named"}},
		"not its status":     {[]metav1.ManagedFieldsEntry{fields("rollcall", part)}, []string{"example.com/Named"}},
		"of an unknown form": {[]metav1.ManagedFieldsEntry{fields("rollcall", `{"f:status":{"f:conditions":[]}}`), {Manager: "rollcall"}}, []string{"example.com/Named"}},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}}
		for _, condition := range []corev1.NodeConditionType{"Ready", "example.com/Own", "example.com/Named"} {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: condition})
		}
		if got := conditions(node, "example.com/Named"); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
