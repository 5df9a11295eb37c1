package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// The README's first command, as it stands there.
func TestReadmeDemo(t *testing.T) {
	root, err := livecluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./demo")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("go run ./demo: %v", err)
	}
	for _, want := range []string{"shop/notebook", "kube-system/kube-proxy-" + spotNode, "Static",
		"pods failed with OutOfcpu", "nodes are held, MirrorMissing", "all outcomes as they should be"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
}

func TestDemoRefusesArguments(t *testing.T) {
	root, err := livecluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := livecluster.Executable(t.Context(), t.TempDir(), "./demo")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "now")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), `unexpected argument "now"`) {
		t.Errorf("exit %d (%v), output %s", cmd.ProcessState.ExitCode(), err, out)
	}
}
