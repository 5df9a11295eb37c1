package tui

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// The screens of the README are those of a stream that was recorded on a real control plane
// (go test ./cmd/kubectl-rollcall -run TestLiveView -record FILE), each at the first record from which there is something
// to see. The task captures puts them into the README again.
func TestCaptures(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("testdata", "storm.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keys []string
		from func(*stream.State) bool
	}{
		"going":    {[]string{"1"}, func(s *stream.State) bool { return len(s.Going) == 2 && marked(s.Going) }},
		"pods":     {[]string{"1", "enter"}, func(s *stream.State) bool { return len(s.Going) == 2 && marked(s.Going) }},
		"coming":   {[]string{"2"}, func(s *stream.State) bool { return len(s.Coming) > 0 && s.Coming[0].Held }},
		"queue":    {[]string{"3"}, func(s *stream.State) bool { return len(s.Going) == 2 && marked(s.Going) }},
		"log":      {[]string{"4"}, func(s *stream.State) bool { return len(s.Coming) > 0 && s.Coming[0].Held }},
		"standing": {[]string{"5"}, func(s *stream.State) bool { return len(s.Standing) > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			frame := firstFrame(t, recorded, c.from)
			s := newStage(110, 15)
			s.options.Context = "prod-eu"
			s.clock = frame.State.Time
			frame.Phase, frame.Since, frame.Received, frame.Notice, frame.Peer = stream.Live, s.clock, s.clock, "", ""
			s.Update(frameMsg(frame))
			s.press(c.keys...)
			compareBlock(t, filepath.Join("..", "README.md"), name, s.text())
		})
	}
}

// compareBlock compares, or with -update writes, the block of text that follows the file's comment "screen: name".
func compareBlock(t *testing.T, path, name, got string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mark := "<!-- screen: " + name + " -->\n```text\n"
	before, rest, found := strings.Cut(string(text), mark)
	_, after, ended := strings.Cut(rest, "\n```\n")
	if !found || !ended {
		t.Fatalf("%s has no block after %q", path, mark)
	}
	compare(t, path, before+mark+got+"\n```\n"+after)
}

func marked(nodes []*stream.GoingNode) bool {
	for _, n := range nodes {
		if n.Verdicts[lost] == 0 || n.Marked < n.Verdicts[lost] {
			return false
		}
	}
	return true
}

// firstFrame replays ever more of a recording until what a client knows is enough.
func firstFrame(t *testing.T, recorded []byte, enough func(*stream.State) bool) stream.Frame {
	t.Helper()
	lines := bytes.SplitAfter(recorded, []byte("\n"))
	path := filepath.Join(t.TempDir(), "part.ndjson")
	for n := 2; n <= len(lines); n++ { // the first line is the recording's header
		if err := os.WriteFile(path, bytes.Join(lines[:n], nil), 0o600); err != nil {
			t.Fatal(err)
		}
		client := stream.NewClient(stream.Replay{Path: path, Speed: 1e9}, stream.ClientOptions{})
		ran := make(chan error, 1)
		go func() { ran <- client.Run(context.Background()) }()
		var last stream.Frame
		for last = range client.Frames() {
		}
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		if last.State != nil && enough(last.State) {
			return last
		}
	}
	t.Fatal("the recording never gets there")
	return stream.Frame{}
}
