package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

const (
	// frameEvery is the least time between two frames: eyes and terminals want no more.
	frameEvery = 100 * time.Millisecond
	// firstRetry and lastRetry bound the pause before the next attempt. A new leader is looked for until it is there, and
	// an attempt costs two small reads of the API server.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
	// lastingRetry is the pause where trying again is not likely to help: a right may be granted meanwhile.
	lastingRetry = 15 * time.Second
	// patience is how long an attempt may take to its first record.
	patience = 15 * time.Second
	// silences is how many heartbeats may be missed before a connection counts as lost.
	silences = 3
	// maxLine is the most bytes of one record that a client reads; a server sends less (see the limits of Hub).
	maxLine = 32 << 20
)

// ClientOptions are what a user chooses of a client. All may be left out.
type ClientOptions struct {
	// Clock is time.Now outside tests.
	Clock func() time.Time
	// Jitter returns a number in [0,1), for the pauses before attempts.
	Jitter func() float64
	// Tap sees every record that came whole and in its place, as it came, without its end of line: what cannot be used is
	// of no use to who prints or keeps it either. The bytes are the client's: copy them to keep them. An error ends Run.
	Tap func(line []byte) error
}

// A Client keeps a State current from a stream, and comes back when the stream breaks.
type Client struct {
	dialer  Dialer
	options ClientOptions
	frames  chan Frame

	frame     Frame // as of now; only Run's goroutine has it
	published time.Time
	stale     bool // frame was not published yet
}

// NewClient makes a client that does nothing until Run.
func NewClient(dialer Dialer, o ClientOptions) *Client {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return &Client{dialer: dialer, options: o, frames: make(chan Frame, 1)}
}

// Frames has the newest frame only: one that nobody took is replaced. At most ten a second come, and none while nothing
// changes. It is closed when Run returns.
func (c *Client) Frames() <-chan Frame { return c.frames }

// Run follows the stream until the context ends, which is no error, or a recording has no more. It returns an error only
// where going on makes no sense: the Tap's.
func (c *Client) Run(ctx context.Context) error {
	defer close(c.frames)
	for failures := 0; ; failures++ {
		c.enter(Connecting)
		err := c.attempt(ctx, &failures)
		var tap *tapError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrEnded):
			c.frame.Notice, c.frame.Err = ErrEnded.Error(), ErrEnded
			c.enter(Ended)
			return nil
		case errors.As(err, &tap):
			return tap.err
		}
		if !c.pause(ctx, failures, err) {
			return nil
		}
	}
}

// A tapError is that of the Tap.
type tapError struct{ err error }

func (e *tapError) Error() string { return e.err.Error() }

// pause waits before the next attempt and says so.
func (c *Client) pause(ctx context.Context, failures int, why error) bool {
	var refused *ConnectError
	pause := backoff(failures, lastRetry, c.options.Jitter)
	if errors.As(why, &refused) && refused.Lasting {
		pause = lastingRetry
	}
	c.frame.Notice, c.frame.Err = printable(why.Error()), why
	c.frame.Retry = c.options.Clock().Add(pause)
	c.enter(Disconnected)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	c.frame.Reconnects++
	return true
}

// backoff is a random time up to a bound that doubles with each failure in a row: clients that lost the same server do
// not come back in step ("full jitter").
func backoff(failures int, most time.Duration, jitter func() float64) time.Duration {
	bound := most
	if failures < 16 { // beyond, the shift means nothing
		bound = min(most, firstRetry<<failures)
	}
	return time.Duration(jitter() * float64(bound))
}

// enter changes the phase and publishes it at once.
func (c *Client) enter(phase Phase) {
	c.frame.Phase, c.frame.Since = phase, c.options.Clock()
	if phase == Connecting || phase == Live {
		c.frame.Retry = time.Time{}
	}
	c.publish()
}

// publish replaces the frame that nobody took. Only Run's goroutine sends, so that the place is free.
func (c *Client) publish() {
	select {
	case <-c.frames:
	default:
	}
	c.frames <- c.frame
	c.published, c.stale = c.options.Clock(), false
}

// attempt opens one stream and follows it to its end. It clears the failures once a snapshot came.
func (c *Client) attempt(ctx context.Context, failures *int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := time.AfterFunc(patience, func() { cancel(ErrNoAnswer) })
	connection, err := c.dialer.Dial(ctx)
	if !timeout.Stop() {
		err = late(err)
	}
	if err != nil {
		if connection != nil {
			_ = connection.Body.Close()
		}
		return err
	}
	c.frame.Peer = printable(connection.Peer)
	lines, ended := make(chan []byte), make(chan error, 1)
	body := &heard{connection.Body, make(chan struct{}, 1)}
	go func() { ended <- readLines(ctx, body, lines) }()
	err = c.follow(ctx, connection.Recorded, body.bytes, lines, ended, failures)
	cancel(nil)
	_ = connection.Body.Close() // a read in flight returns
	for range lines {
	} // closed by the reader when it has ended
	return err
}

// ErrNoAnswer is the cause (context.Cause) of the end of a Dial that took longer than the client waits. A Dialer that is
// cut short by it says what it was waiting for, and of whom.
var ErrNoAnswer = fmt.Errorf("no answer for %v", patience)

// late is the error of a Dial that was given up: the dialer's own words where it has some for people.
func late(err error) error {
	var told *ConnectError
	if errors.As(err, &told) {
		return err
	}
	return &ConnectError{Problem: "the controller was not reached: " + ErrNoAnswer.Error(), Advice: "check the way to it", Err: ErrNoAnswer}
}

// heard is a body that tells when bytes come: a long record over a slow line is no silence. bytes has one place.
type heard struct {
	io.Reader
	bytes chan struct{}
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		select {
		case h.bytes <- struct{}{}:
		default: // the last is not noticed yet
		}
	}
	return n, err
}

// follow applies records until the stream ends.
func (c *Client) follow(ctx context.Context, recorded bool, bytes <-chan struct{}, lines <-chan []byte, ended <-chan error, failures *int) error {
	session := &session{last: c.frame.State}
	silence := patience
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	next := time.NewTimer(time.Hour) // of the frame that waits
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet.C:
			return fmt.Errorf("nothing came for %v", silence)
		case <-bytes:
			if !recorded {
				quiet.Reset(silence)
			}
		case <-next.C:
			c.publish()
		case line, ok := <-lines:
			if !ok {
				return <-ended
			}
			if err := c.take(session, line); err != nil {
				return err
			}
			*failures = 0
			if recorded {
				quiet.Stop()
			} else {
				silence = silences * time.Duration(c.frame.State.Server.HeartbeatSeconds) * time.Second
				quiet.Reset(silence)
			}
			if c.stale {
				next.Reset(max(0, frameEvery-c.options.Clock().Sub(c.published)))
			}
		}
	}
}

// take applies one line.
func (c *Client) take(s *session, line []byte) error {
	var record Record
	if err := json.Unmarshal(line, &record); err != nil {
		return fmt.Errorf("a record cannot be read: %w", err)
	}
	state, err := s.apply(&record)
	if err == nil || s.live && errors.Is(err, errFellBehind) { // that record is in its place too, the last
		if tap := c.tap(line); tap != nil {
			return tap
		}
	}
	if err != nil {
		if record.Kind == FellBehind {
			c.frame.FellBehind++
		}
		return err
	}
	c.frame.State, c.frame.Received = state, c.options.Clock()
	c.stale = true
	if c.frame.Phase != Live {
		c.frame.Notice, c.frame.Err = "", nil
		c.enter(Live)
	}
	return nil
}

func (c *Client) tap(line []byte) error {
	if c.options.Tap == nil {
		return nil
	}
	if err := c.options.Tap(line); err != nil {
		return &tapError{err}
	}
	return nil
}

// wholeLines is a bufio.SplitFunc of the lines that have their end. What a broken stream leaves of a line is no record,
// and would hide why the stream broke.
func wholeLines(data []byte, _ bool) (advance int, token []byte, err error) {
	return bufio.ScanLines(data, false)
}

// readLines hands out whole lines until the body ends. It closes lines in the end.
func readLines(ctx context.Context, body io.Reader, lines chan<- []byte) error {
	defer close(lines)
	scanner := bufio.NewScanner(body)
	scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
	scanner.Split(wholeLines)
	for scanner.Scan() {
		line := append([]byte(nil), scanner.Bytes()...)
		if len(line) == 0 {
			continue
		}
		select {
		case lines <- line:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch err := scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a record is longer than %d MiB", maxLine>>20)
	case err != nil:
		return fmt.Errorf("the stream broke: %w", err)
	}
	return errors.New("the controller ended the stream")
}
