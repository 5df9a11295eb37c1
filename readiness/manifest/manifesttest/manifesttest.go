// Package manifesttest owns the cases of what a kubelet's validation says of static pods, for whatever decodes manifests:
// package manifest and, in demo/oracle, the kubelet itself. It decodes none.
package manifesttest

import (
	_ "embed"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

//go:embed validation.yaml
var validation []byte

// Validation has decode read every case, and fails where a manifest is refused that a kubelet runs, taken that it refuses, or
// refused for another reason.
func Validation(t *testing.T, decode func(t *testing.T, data []byte) error) {
	var cases []struct {
		Name, Refused  string
		Metadata, Spec map[string]any
	}
	if err := yaml.UnmarshalStrict(validation, &cases); err != nil {
		t.Fatal(err)
	}
	for _, test := range cases {
		t.Run(test.Name, func(t *testing.T) {
			err := decode(t, Manifest(t, test.Metadata, test.Spec))
			switch {
			case test.Refused == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case test.Refused != "" && (err == nil || !strings.Contains(err.Error(), test.Refused)):
				t.Errorf("got %v, want %q in it", err, test.Refused)
			}
		})
	}
}

// Manifest is a static pod's with these fields, and with what else it must have.
func Manifest(t *testing.T, metadata, spec map[string]any) []byte {
	t.Helper()
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "a"},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
	}
	for section, fields := range map[string]map[string]any{"metadata": metadata, "spec": spec} {
		for name, value := range fields {
			pod[section].(map[string]any)[name] = value
		}
	}
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
