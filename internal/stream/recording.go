package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// A recording is a file of lines: a header, then the records as they came.

// recordingHeader is the first line of a recording.
type recordingHeader struct {
	Recording int       `json:"rollcallRecording"` // the Version of its records
	Recorded  time.Time `json:"recorded"`          // by the client's clock
}

// maxGap is the longest pause between two records that is replayed: nobody recorded, or the controller changed.
const maxGap = 30 * time.Second

// A Recorder writes a recording.
type Recorder struct {
	w      io.Writer
	clock  func() time.Time
	opened bool
}

// NewRecorder makes a Recorder that writes with the first record. The caller owns w.
func NewRecorder(w io.Writer, clock func() time.Time) *Recorder { return &Recorder{w: w, clock: clock} }

// Record writes one line; it is a ClientOptions.Tap.
func (r *Recorder) Record(line []byte) error {
	var b bytes.Buffer
	if !r.opened {
		if err := json.NewEncoder(&b).Encode(recordingHeader{Version, r.clock()}); err != nil {
			return fmt.Errorf("writing the recording: %w", err)
		}
		r.opened = true
	}
	b.Write(line)
	b.WriteByte('\n')
	if _, err := r.w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}
	return nil
}

// A Replay dials a recording: the stream has the records again, in their own time.
type Replay struct {
	Path string
	// Speed is how many times faster than it was; it must be above zero.
	Speed float64
}

// Dial implements Dialer.
func (r Replay) Dial(ctx context.Context) (*Connection, error) {
	file, err := os.Open(r.Path)
	if err != nil {
		return nil, &ConnectError{Problem: fmt.Sprintf("the recording cannot be read: %v", err), Advice: "kubectl rollcall stream --record FILE writes one", Err: err, Lasting: true}
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	var header recordingHeader
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &header) != nil || header.Recording != Version {
		_ = file.Close()
		problem := fmt.Sprintf("%s is no recording that this program can read", r.Path)
		if header.Recording > 0 {
			problem = fmt.Sprintf("%s is a recording of version %d, and this program reads version %d", r.Path, header.Recording, Version)
		}
		return nil, &ConnectError{Problem: problem, Advice: "kubectl rollcall stream --record FILE writes one", Err: lines.Err(), Lasting: true}
	}
	reader, writer := io.Pipe()
	ctx, stop := context.WithCancel(ctx)
	played := make(chan struct{})
	go func() {
		defer close(played)
		defer file.Close()
		_ = writer.CloseWithError(r.play(ctx, lines, writer))
	}()
	return &Connection{Body: &player{reader, stop, played}, Peer: r.Path, Recorded: true}, nil
}

// player is the body of a replay. Closing it waits for the file to be closed.
type player struct {
	*io.PipeReader
	stop   context.CancelFunc
	played chan struct{}
}

func (p *player) Close() error {
	p.stop()
	err := p.PipeReader.Close()
	<-p.played
	return err
}

// play writes the lines at their time, until there are no more or ctx ends. A line that cannot be read was cut short, by
// the end of whoever recorded or of the stream that was recorded; what follows is of no use before the next snapshot.
func (r Replay) play(ctx context.Context, lines *bufio.Scanner, to io.Writer) error {
	var last time.Time
	broken := false
	for lines.Scan() {
		var record struct {
			Kind RecordKind
			Time time.Time
		}
		broken = json.Unmarshal(lines.Bytes(), &record) != nil || broken && record.Kind != Snapshot
		if broken || record.Kind == FellBehind {
			continue // a fell-behind record ended the client's connection then, and the next line is a snapshot
		}
		gap := time.Duration(0)
		if !last.IsZero() {
			gap = min(max(0, record.Time.Sub(last)), maxGap)
		}
		last = record.Time
		timer := time.NewTimer(time.Duration(float64(gap) / r.Speed))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		if _, err := to.Write(append(lines.Bytes(), '\n')); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", r.Path, err)
	}
	return ErrEnded
}
