package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// Without a terminal, and with flags that do not go together, there is one error and the way out, and nothing is asked.
func TestLiveViewMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		args         []string
		status       int
		error, hints string
	}{
		"no terminal":         {nil, 1, "this is no terminal", "kubectl rollcall stream --once"},
		"no terminal, local":  {[]string{"--local"}, 1, "this is no terminal", "kubectl rollcall check"},
		"local and address":   {[]string{"--local", "--stream-address", "127.0.0.1:1"}, 2, "--local excludes", "makes the stream itself"},
		"local and replay":    {[]string{"--local", "--replay", "f"}, 2, "--local excludes", "makes the stream itself"},
		"address and replay":  {[]string{"--stream-address", "127.0.0.1:1", "--replay", "f"}, 2, "exclude each other", "needs no address"},
		"no speed":            {[]string{"--replay", "f", "--speed", "0"}, 2, "--speed is 0", "1 is as fast as it was"},
		"unknown cause":       {[]string{"--local", "--notice", "x=1m"}, 2, "unknown cause", "--help"},
		"unknown flag":        {[]string{"--colour"}, 2, "unknown flag", "kubectl rollcall --help"},
		"a command near":      {[]string{"strem"}, 2, `there is no command "strem"`, "stream?"},
		"a command and flags": {[]string{"chek", "--ascii"}, 2, `there is no command "chek"`, "check?"},
	} {
		t.Run(name, func(t *testing.T) {
			got := rollcall(t, strings.NewReader(""), tc.args...)
			if got.status != tc.status || got.stdout != "" || strings.Count(got.stderr, "\n") != 2 ||
				!strings.HasPrefix(got.stderr, "error: ") || !strings.Contains(got.stderr, tc.error) || !strings.Contains(got.stderr, tc.hints) {
				t.Errorf("status %d, said %q and %q", got.status, got.stdout, got.stderr)
			}
		})
	}
}

// A refusal comes with its way out in one sentence, and a cluster without a controller with --local.
func TestAdvising(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "rollcall-controller")
	for name, tc := range map[string]struct{ err, want error }{
		"advice":        {&stream.ConnectError{Problem: "no", Advice: "do this"}, errors.New("no (do this)")},
		"no advice":     {&stream.ConnectError{Problem: "no"}, errors.New("no")},
		"no controller": {&stream.ConnectError{Problem: "none", Err: missing}, errors.New("none; kubectl rollcall --local shows the same with a controller of your own, which writes nothing")},
		"another error": {errors.New("broken"), errors.New("broken")},
	} {
		_, err := advising{refusing{tc.err}}.Dial(t.Context())
		if err == nil || err.Error() != tc.want.Error() {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// refusing dials nothing.
type refusing struct{ err error }

func (r refusing) Dial(context.Context) (*stream.Connection, error) { return nil, r.err }

// Who quits does not wait for a credential plugin that does not end.
func TestWaitBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		login := make(chan struct{})
		running.Go(func() { <-login })
		begun := time.Now()
		waitBriefly(&running)
		if took := time.Since(begun); took != lastWait {
			t.Errorf("with one that does not end it took %v", took)
		}
		close(login)
		begun = time.Now()
		waitBriefly(&running)
		if took := time.Since(begun); took != 0 {
			t.Errorf("with one that ended it took %v", took)
		}
	})
}
