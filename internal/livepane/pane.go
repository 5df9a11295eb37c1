// Package livepane drives one program in a real terminal, tmux's, for tests: it presses keys as a person does and waits
// for what the screen shows. It knows nothing of the program, and tests alone may import it.
package livepane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// patience bounds every wait.
const patience = 2 * time.Minute

// A Pane is a terminal with one program in it. What goes wrong ends the test.
type Pane struct {
	t      *testing.T
	socket string
}

// Open runs a command line in a terminal of that size, with environment variables as NAME=value. Once it has ended the
// screen says "ended with" and its exit status. The terminal, and a program that is still in it, ends with the test.
func Open(t *testing.T, width, height int, env []string, command ...string) *Pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal("this test needs tmux: apt-get install -y tmux")
	}
	dir, err := os.MkdirTemp("", "rollcall-tmux") // t.TempDir's names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &Pane{t, filepath.Join(dir, "socket")}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() // it may have ended by itself
		_ = os.RemoveAll(dir)
	})
	quoted := make([]string, 0, len(command))
	for _, word := range command {
		quoted = append(quoted, "'"+word+"'")
	}
	line := strings.Join(env, " ") + " " + strings.Join(quoted, " ") + "; echo ended with $?; read _"
	p.Tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), line)
	p.Tmux("set", "-g", "set-clipboard", "on")
	return p
}

// Tmux runs one of tmux's commands on the pane's server and returns what it prints.
func (p *Pane) Tmux(args ...string) string {
	p.t.Helper()
	command := exec.CommandContext(p.t.Context(), "tmux", append([]string{"-S", p.socket}, args...)...)
	command.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMUX=")
	out, err := command.CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// Press presses keys, by tmux's names of them.
func (p *Pane) Press(keys ...string) {
	p.t.Helper()
	p.Tmux(append([]string{"send-keys"}, keys...)...)
}

// Shows waits up to two minutes until the screen has all of the texts at once, and returns the screen.
func (p *Pane) Shows(texts ...string) string {
	p.t.Helper()
	var screen, missing string
	err := wait.PollUntilContextTimeout(p.t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		screen = p.Tmux("capture-pane", "-p")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		p.t.Fatalf("the screen does not show %q:\n%s", missing, screen)
	}
	return screen
}
