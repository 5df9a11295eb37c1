package main

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

// A pane is a real terminal, tmux's, with one program in it.
type pane struct {
	*testing.T
	socket string
}

// newPane runs a command line in a terminal of that size, and says there when it has ended and how.
func newPane(t *testing.T, width, height int, env []string, command ...string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal("this test needs tmux: apt-get install -y tmux")
	}
	dir, err := os.MkdirTemp("", "rollcall-tmux") // t.TempDir's names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &pane{t, filepath.Join(dir, "socket")}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() // it may have ended by itself
		_ = os.RemoveAll(dir)
	})
	for i := range command {
		command[i] = "'" + command[i] + "'"
	}
	line := strings.Join(env, " ") + " " + strings.Join(command, " ") + "; echo ended with $?; read _"
	p.tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), line)
	p.tmux("set", "-g", "set-clipboard", "on")
	return p
}

// tmux runs one of tmux's commands on the pane's server.
func (p *pane) tmux(args ...string) string {
	p.Helper()
	command := exec.CommandContext(p.Context(), "tmux", append([]string{"-S", p.socket}, args...)...)
	command.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMUX=")
	out, err := command.CombinedOutput()
	if err != nil {
		p.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// press presses keys, by tmux's names of them.
func (p *pane) press(keys ...string) {
	p.Helper()
	p.tmux(append([]string{"send-keys"}, keys...)...)
}

func (p *pane) screen() string { return p.tmux("capture-pane", "-p") }

// shows waits until the screen has all of the texts.
func (p *pane) shows(texts ...string) string {
	p.Helper()
	var screen, missing string
	err := wait.PollUntilContextTimeout(p.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		screen = p.screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		p.Fatalf("the screen does not show %q:\n%s", missing, screen)
	}
	return screen
}
