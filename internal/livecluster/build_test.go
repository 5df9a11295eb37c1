package livecluster

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cutter ends a build once it says so.
type cutter struct {
	words string
	end   context.CancelFunc
	heard strings.Builder
}

func (c *cutter) Write(p []byte) (int, error) {
	c.heard.Write(p)
	if strings.Contains(c.heard.String(), c.words) {
		c.end()
	}
	return len(p), nil
}

// A build that is cut off says so in words, what becomes of what was done, and leaves no binary.
func TestBuildIsCutOff(t *testing.T) {
	source := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/slow\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(t.TempDir(), "out", "slow")
	m := Module{Name: "slow", What: "the example", Takes: "a moment"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := m.build(ctx, source, binary, &cutter{words: "building the example", end: cancel}, false)
	if err == nil || !strings.Contains(err.Error(), "the build of the example was cut off") || !strings.Contains(err.Error(), "what was compiled is kept") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(binary); !os.IsNotExist(err) {
		t.Errorf("a binary is there: %v", err)
	}
	// Run again it goes through.
	if err := m.build(t.Context(), source, binary, io.Discard, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Error(err)
	}
}
