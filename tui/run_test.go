//go:build linux

package tui

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// runOn runs the UI on a terminal; the result waits for its end.
func runOn(ctx context.Context, s *screenTerminal, frames <-chan stream.Frame) (wait func() error) {
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Frames: frames, Context: "prod-eu", Mode: "a test", Now: time.Now, In: s.near, Out: s.near})
	}()
	return func() error { return <-ended }
}

// A person sees frames as they come, presses keys, and leaves; the terminal is as it was.
func TestRunOnATerminal(t *testing.T) {
	s := newTerminal(t, 80, 24)
	frames := make(chan stream.Frame, 1)
	wait := runOn(t.Context(), s, frames)
	s.await(t, "~ connecting")
	frames <- stream.Frame{State: many(), Phase: stream.Live, Since: time.Now(), Received: time.Now()}
	s.await(t, "n00")
	s.press(t, "j")
	s.await(t, "2 of 30")
	s.press(t, "\r")
	s.await(t, "nothing is known of pods of n01")
	s.press(t, "\x1b")
	s.await(t, "2 of 30")
	s.press(t, "y")
	s.await(t, "\x1b]52;c;"+b64("n01")+"\x07")
	s.press(t, "q")
	if err := wait(); err != nil {
		t.Error(err)
	}
	s.await(t, "\x1b[?1049l") // the screen of before
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(s.written.String(), "\x1b[?1000h") || strings.Contains(s.written.String(), "\x1b[?1002h") {
		t.Error("the mouse was taken")
	}
}

// Its end closes nothing that is still read from, which the race detector sees in one of some twenty ends.
func TestRunEndsWithItsContext(t *testing.T) {
	for range 30 {
		s := newTerminal(t, 80, 24)
		ctx, cancel := context.WithCancel(t.Context())
		wait := runOn(ctx, s, make(chan stream.Frame))
		s.await(t, "~ connecting")
		cancel()
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		s.await(t, "\x1b[?1049l") // the screen of before
	}
}

// Once the last frame came, the UI stays.
func TestRunOutlivesItsFrames(t *testing.T) {
	s := newTerminal(t, 80, 24)
	frames := make(chan stream.Frame, 1)
	frames <- stream.Frame{State: many(), Phase: stream.Ended, Since: time.Now(), Received: time.Now()}
	close(frames)
	wait := runOn(t.Context(), s, frames)
	s.await(t, "the recording has ended")
	s.press(t, "jq")
	if err := wait(); err != nil {
		t.Error(err)
	}
}

func TestRunWithoutATerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	s := newTerminal(t, 80, 24)
	for name, o := range map[string]Options{
		"output is a file":     {In: s.near, Out: file},
		"input is a file":      {In: file, Out: s.near},
		"output is no file":    {In: s.near, Out: &strings.Builder{}},
		"input is not a thing": {Out: s.near},
	} {
		var hinted interface{ Hint() string }
		if err := Run(t.Context(), o); !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "stream --once") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The clock goes on by itself: nothing comes, and the age is shown anew each second.
func TestClockGoesOn(t *testing.T) {
	s := newTerminal(t, 80, 24)
	wait := runOn(t.Context(), s, make(chan stream.Frame))
	shown := map[string]bool{}
	s.awaitThat(t, "three ages", func(written string) bool {
		for _, age := range regexp.MustCompile(`connecting for \d+s`).FindAllString(written, -1) {
			shown[age] = true
		}
		return len(shown) >= 3
	})
	s.press(t, "q")
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// NO_COLOR in the program's environment is obeyed.
func TestNoColor(t *testing.T) {
	colour := regexp.MustCompile(`\x1b\[[0-9;]*[34]8[;:]`)
	for value, want := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", value)
		t.Setenv("TERM", "xterm-256color")
		t.Setenv("CI", "") // where it is set, no output is taken for a terminal's
		s := newTerminal(t, 80, 24)
		frames := make(chan stream.Frame, 1)
		frames <- stream.Frame{State: many(), Phase: stream.Live, Since: time.Now(), Received: time.Now()}
		wait := runOn(t.Context(), s, frames)
		s.await(t, "n05")
		s.mu.Lock()
		got := colour.MatchString(s.written.String())
		s.mu.Unlock()
		if got != want {
			t.Errorf("with NO_COLOR=%q there are colours: %t", value, got)
		}
		s.press(t, "q")
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
}

// A program that imports this package and draws nothing says nothing to the terminal and waits for no answer.
func TestTerminalIsNotAsked(t *testing.T) {
	s := newTerminal(t, 80, 24)
	quiet := exec.Command(os.Args[0])
	quiet.Env = append(os.Environ(), asNothing+"=1", "TERM=xterm-256color", "CI=")
	quiet.Stdin, quiet.Stdout = s.near, s.near
	quiet.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // in the foreground of its terminal
	if err := quiet.Run(); err != nil {
		t.Fatal(err)
	}
	s.await(t, "TERM is xterm-256color")
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(s.written.String(), "\x1b") {
		t.Errorf("the terminal was sent %q", s.written.String())
	}
}
