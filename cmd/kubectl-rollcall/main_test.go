package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// binary is the built program; the tests here go through it as a user does.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kubectl-rollcall")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := 1
	if binary, err = livecluster.Executable(context.Background(), dir, "./cmd/kubectl-rollcall"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// A result is what one run of the program gave.
type result struct {
	stdout, stderr string
	status         int
}

// rollcall runs the program without a kubeconfig.
func rollcall(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"), "KUBERNETES_SERVICE_HOST=")
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = stdin, &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %v: %v", args, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%v hangs", args)
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}
