package readiness

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An Apply is the body of a server-side apply to the status of a Node: the fields of one field manager and no other's. It
// names the Node's UID, so that another Node of that name is refused (409).
type Apply struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   applyMeta    `json:"metadata"`
	Status     *applyStatus `json:"status,omitempty"`
}

type applyMeta struct {
	Name            string            `json:"name"`
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type applyStatus struct {
	Conditions []corev1.NodeCondition `json:"conditions"`
}

// ApplySet publishes the encoded expected set on the Node. It belongs to another field manager than the condition: who
// applies one of them must not lose the other.
func ApplySet(node *corev1.Node, encoded string) ([]byte, error) {
	return json.Marshal(Apply{
		APIVersion: "v1", Kind: "Node",
		Metadata: applyMeta{Name: node.Name, UID: node.UID, Annotations: map[string]string{StaticPodsAnnotation: encoded}},
	})
}

// ApplyCondition writes the condition to the Node, if it still is the version that the condition was made from: anything
// that anybody wrote since makes it a conflict (409).
func ApplyCondition(node *corev1.Node, condition corev1.NodeCondition) ([]byte, error) {
	return json.Marshal(Apply{
		APIVersion: "v1", Kind: "Node",
		Metadata: applyMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Status:   &applyStatus{Conditions: []corev1.NodeCondition{condition}},
	})
}
