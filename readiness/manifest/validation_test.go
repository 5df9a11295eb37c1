package manifest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What the API's validation refuses is refused with its reason, and nothing that it accepts; the oracle reads the same file.
func TestValidation(t *testing.T) {
	data, err := os.ReadFile("testdata/validation.yaml")
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
	for _, test := range cases {
		t.Run(test.Name, func(t *testing.T) {
			_, err := Decode(complete(t, test.Metadata, test.Spec), "n1")
			switch {
			case test.Refused == "" && err != nil:
				t.Error(err)
			case test.Refused != "" && (err == nil || !strings.Contains(err.Error(), test.Refused)):
				t.Errorf("got %v, want %q in it", err, test.Refused)
			}
		})
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

// A fixed metadata.uid is the hash, unless one would take it for one that is made of the content.
func TestHash(t *testing.T) {
	for uid, want := range map[string]string{
		"":                                      "",
		"fixed":                                 "fixed",
		"0123456789abcdef0123456789abcdef":      "",
		"0123456789abcdef0123456789abcde":       "0123456789abcdef0123456789abcde",
		"0123456789abcdef0123456789abcdef0":     "0123456789abcdef0123456789abcdef0",
		"0123456789ABCDEF0123456789ABCDEF":      "0123456789ABCDEF0123456789ABCDEF",
		"01234567-89ab-cdef-0123-456789abcdef":  "01234567-89ab-cdef-0123-456789abcdef",
		"0123456789abcdef0123456789abcdeg":      "0123456789abcdef0123456789abcdeg",
		"0123456789abcdef0123456789abcdef\n":    "0123456789abcdef0123456789abcdef\n",
		"\n0123456789abcdef0123456789abcdef\n ": "\n0123456789abcdef0123456789abcdef\n ",
	} {
		decoded, err := Decode(complete(t, map[string]any{"uid": uid}, nil), "n1")
		if err != nil {
			t.Fatal(err)
		}
		if string(decoded.UID) != uid {
			t.Errorf("uid %q became %q", uid, decoded.UID)
		}
		if got := describe(decoded).Hash; got != want {
			t.Errorf("uid %q: hash %q, want %q", uid, got, want)
		}
	}
}
