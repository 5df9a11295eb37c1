package liverollcall

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// startScript runs a shell script as a program.
func startScript(t *testing.T, script string) *Program {
	t.Helper()
	b := &Binaries{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(b.Dir, "script"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := b.Start("script", "script")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func says(t *testing.T, p *Program, lines int) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		words, err := p.Said()
		return strings.Count(words, "here") >= lines, err
	})
	if err != nil {
		t.Fatalf("waiting for it to say %d lines: %v", lines, err)
	}
}

// A program that ends by itself is started again; one that is stopped is not, however often it is stopped.
func TestProgramIsRestarted(t *testing.T) {
	p := startScript(t, "echo here\n")
	says(t, p, 3)
	if !p.ended() {
		t.Error("it has not ended, it says")
	}
	p.Stop()
	p.Stop()
	if p.child != nil {
		t.Errorf("process %d is still there", p.child.Pid)
	}
}

// Stop ends a program that would run for ever.
func TestProgramIsStopped(t *testing.T) {
	p := startScript(t, "echo here\nexec tail -f /dev/null\n")
	says(t, p, 1)
	p.Stop()
	if p.child != nil {
		t.Errorf("process %d is still there", p.child.Pid)
	}
}

// A program that is not there cannot be started.
func TestProgramIsMissing(t *testing.T) {
	b := &Binaries{Dir: t.TempDir()}
	if _, err := b.Start("nothing", "nothing"); err == nil {
		t.Error("nothing was started without an error")
	}
}
