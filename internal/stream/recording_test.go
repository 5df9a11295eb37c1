package stream

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const anHour = `{"rollcallRecording":1,"recorded":"2026-12-01T19:00:00Z"}
{"kind":"snapshot","seq":1,"time":"2026-12-01T19:00:00Z","server":{"version":1,"boot":"a","heartbeatSeconds":10}}
{"kind":"update","seq":2,"time":"2026-12-01T19:00:02Z","going":[{"name":"n"}]}
{"kind":"fell-behind","seq":3,"time":"2026-12-01T19:00:03Z"}
{"kind":"snapshot","seq":1,"time":"2026-12-01T20:00:03Z","server":{"version":1,"boot":"b","heartbeatSeconds":10}}
{"kind":"heartbeat","seq":2,"time":"2026-12-01T19:59:00Z"}
`

func recorded(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recording")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A recording plays in its own time, faster where asked; a pause of an hour and a clock that goes back cost little.
func TestReplay(t *testing.T) {
	path := recorded(t, anHour)
	for speed, want := range map[float64][]time.Duration{
		1:  {0, 2 * time.Second, 2*time.Second + maxGap, 2*time.Second + maxGap},
		10: {0, 200 * time.Millisecond, 3200 * time.Millisecond, 3200 * time.Millisecond},
	} {
		inBubble(t, func(t *testing.T) {
			begun := time.Now()
			var at []time.Duration
			client := NewClient(Replay{path, speed}, ClientOptions{Tap: func([]byte) error {
				at = append(at, time.Since(begun))
				return nil
			}})
			if err := client.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(at) != len(want) {
				t.Fatalf("%d records at %v, want %v", len(at), at, want)
			}
			for i := range want {
				if at[i] != want[i] {
					t.Errorf("speed %v: record %d at %v, want %v", speed, i, at[i], want[i])
				}
			}
			if f := <-client.Frames(); f.Phase != Ended || f.Peer != path || f.State.Server.Boot != "b" || f.Reconnects != 0 {
				t.Errorf("in the end: %+v", f)
			}
		})
	}
}

// What was recorded from a replay is the same records.
func TestRecorderWritesWhatCame(t *testing.T) {
	path := recorded(t, anHour)
	var out bytes.Buffer
	recorder := NewRecorder(&out, func() time.Time { return begin })
	if err := NewClient(Replay{path, 1e9}, ClientOptions{Tap: recorder.Record}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := strings.Join(append(strings.SplitAfter(anHour, "\n")[:3], strings.SplitAfter(anHour, "\n")[4:]...), "")
	if out.String() != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", out.String(), want)
	}
	broken := NewRecorder(failing{}, time.Now)
	if err := broken.Record([]byte("{}")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a full disk: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

// A file that is none is told; one that breaks off within a line ends there.
func TestBrokenRecordings(t *testing.T) {
	for name, tc := range map[string]struct{ text, says string }{
		"empty":           {"", "is no recording"},
		"something else":  {"apiVersion: v1\n", "is no recording"},
		"another version": {`{"rollcallRecording":7}` + "\n", "is a recording of version 7"},
	} {
		_, err := Replay{recorded(t, tc.text), 1}.Dial(t.Context())
		var e *ConnectError
		if !errors.As(err, &e) || !strings.Contains(e.Error(), tc.says) || !e.Lasting || e.Hint() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Replay{filepath.Join(t.TempDir(), "absent"), 1}).Dial(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	client := NewClient(Replay{recorded(t, anHour[:len(anHour)-20]), 1e9}, ClientOptions{})
	if err := client.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := <-client.Frames(); f.Phase != Ended || f.State.Server.Boot != "b" || f.State.Sequence != 1 {
		t.Errorf("broken off: %+v", f)
	}
}

// A line that was cut short within a recording costs what belongs to it: it goes on with the next snapshot.
func TestReplaySkipsBrokenLines(t *testing.T) {
	lines := strings.SplitAfter(anHour, "\n")
	half := lines[2][:30] + "\n"
	for name, tc := range map[string]struct {
		lines []string
		boot  string
		last  uint64
	}{
		"before a snapshot":  {[]string{lines[0], lines[1], half, lines[4], lines[5]}, "b", 2},
		"instead of one":     {[]string{lines[0], half, lines[4], lines[5]}, "b", 2},
		"within a stream":    {[]string{lines[0], lines[1], half, lines[5], lines[4]}, "b", 1},
		"nothing comes next": {[]string{lines[0], lines[1], half, lines[5]}, "a", 1},
	} {
		client := NewClient(Replay{recorded(t, strings.Join(tc.lines, "")), 1e9}, ClientOptions{})
		if err := client.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f := <-client.Frames(); f.Phase != Ended || f.State.Server.Boot != tc.boot || f.State.Sequence != tc.last || f.Reconnects != 0 {
			t.Errorf("%s: %+v with %+v", name, f, f.State)
		}
	}
}
