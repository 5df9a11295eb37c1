package tui

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

var update = flag.Bool("update", false, "write what is compared with")

// sizes are the terminals of the goldens.
var sizes = [][2]int{{60, 15}, {80, 24}, {120, 40}, {200, 50}}

// scenes are what a screen may show, by the golden's directory.
var scenes = map[string]struct {
	play  func(*stage)
	sizes [][2]int
}{
	"empty":   {func(s *stage) { s.live(serverState()); s.wait(2 * time.Second) }, sizes},
	"onenode": {func(s *stage) { s.live(oneNode()); s.wait(2 * time.Second) }, sizes},
	"large":   {func(s *stage) { s.live(large()); s.wait(2 * time.Second) }, [][2]int{{60, 15}, {120, 40}}},
	"disconnected": {func(s *stage) {
		s.live(oneNode())
		s.wait(4 * time.Second)
		s.Update(frameMsg{State: s.frame.State, Phase: stream.Disconnected, Since: s.clock, Retry: s.clock.Add(8 * time.Second), Received: s.received,
			Notice: "the connection to pod rollcall-system/rollcall-controller-7d9f was lost", Peer: s.frame.Peer})
		s.wait(3 * time.Second)
	}, sizes},
	"fellbehind": {func(s *stage) {
		s.live(oneNode())
		s.Update(frameMsg{State: s.frame.State, Phase: stream.Disconnected, Since: s.clock, Received: s.clock, FellBehind: 1, Notice: "the controller cut this client for being too slow", Peer: s.frame.Peer})
		s.Update(frameMsg{State: oneNode(), Phase: stream.Live, Since: s.clock, Received: s.clock, FellBehind: 1, Reconnects: 1, Peer: s.frame.Peer})
		s.wait(2 * time.Second)
	}, sizes},
	"unreached": {func(s *stage) {
		s.Update(frameMsg{Phase: stream.Disconnected, Since: s.clock, Retry: s.clock.Add(5 * time.Second), Notice: "you may not port-forward to pods in rollcall-system: ask for the verbs get and create on pods/portforward"})
		s.wait(time.Second)
	}, [][2]int{{60, 15}, {120, 40}}},
}

// pictures are the views, by the golden's file, and the keys that lead there.
var pictures = map[string][]string{
	"going":         {"1"},
	"pods":          {"1", "enter"},
	"pod":           {"1", "enter", "enter"},
	"coming":        {"2"},
	"comingnode":    {"2", "enter"},
	"queue":         {"3"},
	"key":           {"3", "enter"},
	"log":           {"4"},
	"decision":      {"4", "enter"},
	"standing":      {"5"},
	"standingpods":  {"5", "enter"},
	"help":          {"?"},
	"filter":        {"3", "/", "s", "t", "a"},
	"paused":        {"p"},
	"widened":       {"w"},
	"queuereversed": {"3", "s", "S"},
}

// few are the pictures of scenes where the others would say nothing more.
var few = map[string][]string{
	"large":        {"going", "pods", "coming", "queue", "log", "standing"},
	"disconnected": {"going", "pods", "coming", "queue", "log", "standing", "help"},
	"fellbehind":   {"going", "pods", "coming", "queue", "log", "standing"},
	"empty":        {"going", "coming", "queue", "log", "standing", "help"},
	"unreached":    {"going"},
}

func TestGoldens(t *testing.T) {
	for scene, play := range scenes {
		names := few[scene]
		if names == nil {
			for name := range pictures {
				names = append(names, name)
			}
		}
		for _, name := range names {
			t.Run(scene+"/"+name, func(t *testing.T) {
				var got strings.Builder
				for _, size := range play.sizes {
					s := newStage(size[0], size[1])
					play.play(s)
					s.press(pictures[name]...)
					fits(t, s.View(), size[0], size[1])
					fmt.Fprintf(&got, "=== %dx%d\n%s\n", size[0], size[1], s.text())
				}
				compare(t, filepath.Join("testdata", scene, name+".txt"), got.String())
			})
		}
	}
}

// compare compares with a golden, or writes it.
func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (go test -update writes it):\n%s", path, got)
	}
}

// fits fails unless the screen has as many lines as the terminal, and none is wider.
func fits(t *testing.T, screen string, width, height int) {
	t.Helper()
	lines := strings.Split(screen, "\n")
	if len(lines) != height {
		t.Errorf("%d lines on a terminal of %d", len(lines), height)
	}
	for _, line := range lines {
		if w := widthOf(line); w > width {
			t.Errorf("a line of %d cells on a terminal of %d: %q", w, width, line)
		}
	}
}

// widthOf measures a line as a terminal does.
func widthOf(line string) int { return ansi.StringWidth(line) }
