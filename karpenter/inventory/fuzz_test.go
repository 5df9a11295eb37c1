package inventory

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad: arbitrary bytes give an inventory or one error that says where; never a crash.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		nodeYAML + "---\n" + podYAML, nodeJSON + podJSON1, "[" + nodeJSON + "]", "{a: b}", owners,
		`{"apiVersion":"v1","items":[{}],"kind":"PodList"}`, "- a\n- b", "\xff\xfe", "--- ---", "a: &a [*a]", "%YAML 1.1\n---\n" + nodeYAML,
	} {
		f.Add([]byte(seed))
	}
	cases, err := filepath.Glob("../check/testdata/fate/*.yaml")
	if err != nil || len(cases) == 0 {
		f.Fatalf("no cases to begin with: %v", err)
	}
	for _, c := range cases {
		seed, err := os.ReadFile(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		inv, err := Load([]string{Stdin}, onlyReader{bytes.NewReader(input)})
		var mistake *InputError
		switch {
		case err == nil && inv != nil:
			for _, node := range inv.Nodes() {
				inv.NodeClaim(node)
				for _, pod := range inv.PodsOn(node.Name) {
					inv.TopOwner(pod)
				}
			}
		case !errors.As(err, &mistake), mistake.Where == "", mistake.Problem == "":
			t.Fatalf("err = %v, want an InputError", err)
		}
	})
}
