package oracle

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The kubelet says of the cases of manifest's validation what they expect, and so does manifest.Decode.
func TestValidation(t *testing.T) {
	data, err := os.ReadFile("../../readiness/manifest/testdata/validation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Refused  string
		Metadata, Spec map[string]any
	}
	if err := yaml.UnmarshalStrict(data, &cases); err != nil || len(cases) < 60 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	c := newComparison()
	for _, test := range cases {
		t.Run(test.Name, func(t *testing.T) {
			data := complete(t, test.Metadata, test.Spec)
			c.check(t, data)
			_, err := Decode(data, node)
			switch {
			case test.Refused == "" && err != nil:
				t.Errorf("the kubelet refuses it: %v", err)
			case test.Refused != "" && (err == nil || !strings.Contains(err.Error(), test.Refused)):
				t.Errorf("the kubelet says %v, want %q in it", err, test.Refused)
			}
		})
	}
	if c.extra > 0 {
		t.Errorf("taken for pods here only: %v", c.example)
	}
}

// complete makes a manifest of what a case is about.
func complete(t *testing.T, metadata, spec map[string]any) []byte {
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
