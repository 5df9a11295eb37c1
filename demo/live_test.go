package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/livepane"
)

// A stage is the demo in a terminal, with a directory of its own for all that it makes.
type stage struct {
	*testing.T
	*livepane.Pane
	temporary string
}

func openStage(t *testing.T, flags ...string) *stage {
	t.Helper()
	binary, err := livecluster.Executable(t.Context(), t.TempDir(), "./demo")
	if err != nil {
		t.Fatal(err)
	}
	temporary, err := os.MkdirTemp("", "demo") // t.TempDir's names are too long for the cluster's sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temporary) })
	env := []string{"LC_ALL=C.UTF-8", "TMPDIR=" + temporary}
	return &stage{t, livepane.Open(t, 120, 40, env, append([]string{binary}, flags...)...), temporary}
}

// processes counts the processes of the demo's cluster and of rollcall.
func (s *stage) processes() int {
	s.Helper()
	return processesWith(s.T, filepath.Join(s.temporary, "rollcall-"))
}

// leaves fails the test unless all processes end and the files that are left are the pattern's.
func (s *stage) leaves(pattern string) {
	s.Helper()
	if err := wait.PollUntilContextTimeout(s.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return s.processes() == 0, nil
	}); err != nil {
		s.Errorf("%d processes of the cluster are left", s.processes())
	}
	left, err := os.ReadDir(s.temporary)
	if err != nil {
		s.Fatal(err)
	}
	names := ""
	for _, entry := range left {
		names += entry.Name() + " "
	}
	if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(names) {
		s.Errorf("left over are %q, want %s", names, pattern)
	}
}

// processesWith counts the processes whose command line has the text.
func processesWith(t *testing.T, text string) (n int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		words, err := os.ReadFile(line)
		if err == nil && strings.Contains(string(words), text) { // else it ended meanwhile
			n++
		}
	}
	return n
}

// On a terminal the demo opens the live view: nodes go and come, one is rolled back, and q ends it all.
func TestDemoOnTerminal(t *testing.T) {
	s := openStage(t)
	s.Shows("building rollcall-controller") // each step in plain lines, and a wait of its own
	s.Shows("adding nodes")
	s.Shows("creating a Deployment")
	s.Shows("* live", "the demo's controller", "[1 Going")
	s.Shows("! committed  "+spotNode, "spot-interruption")
	if n := s.processes(); n < 5 {
		t.Errorf("%d processes of the cluster run, want 5 at least", n)
	}
	s.Press("2")
	s.Shows("[2 Coming", "~ held", "kube-system/kube-proxy-spot-")
	s.Shows("+ released")
	s.Press("1")
	s.Shows("aws-node-termination-han", "lost ")
	s.Press("4")
	s.Shows("! mark", "clear", namespace+"/notebook")
	s.Press("q")
	s.Shows("what the storm did is in", "ended with 0")
	s.leaves(`rollcall-demo-\d+\.log `)
}

// With --plain the demo prints plain lines on a terminal too, and an interrupt ends it all.
func TestPlainOnTerminal(t *testing.T) {
	s := openStage(t, "--plain")
	s.Shows("building rollcall-controller, rollcall-agent, kubectl-rollcall")
	s.Press("C-c")
	s.Shows("error: ", "ended with 1")
	s.leaves(`(go-build\d+ )?`) // go, interrupted while it links, may leave its own
}
