package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Port is the controller's by default, on loopback.
const Port = 9790

// StreamPath is where a server gives the stream.
const StreamPath = "/v1/stream"

// SnapshotPath is where a server gives one snapshot.
const SnapshotPath = "/v1/snapshot"

// ContentType is that of the stream: one JSON value a line.
const ContentType = "application/x-ndjson"

// A Dialer opens a stream. Each call is a new connection, to whoever leads then.
type Dialer interface {
	Dial(ctx context.Context) (*Connection, error)
}

// A Connection is one open stream. The caller closes Body; the context given to Dial ends it too.
type Connection struct {
	Body io.ReadCloser // lines of Record; io.EOF where the server ended it, ErrEnded where there never will be more
	Peer string        // what it is connected to, for people
	// Recorded streams come at any speed: their silence means nothing.
	Recorded bool
}

// ErrEnded ends a stream that has no more, such as a recording.
var ErrEnded = errors.New("the recording has no more")

// A ConnectError is a connection that cannot be had, in words for people.
type ConnectError struct {
	Problem string
	Advice  string // the way out; empty where there is none but waiting
	Err     error
	// Lasting is an error that trying again does not mend by itself, such as a missing right.
	Lasting bool
}

func (e *ConnectError) Error() string { return e.Problem }

// Hint returns the way out.
func (e *ConnectError) Hint() string { return e.Advice }

func (e *ConnectError) Unwrap() error { return e.Err }

// Address dials a server at host:port directly.
type Address string

// Dial implements Dialer.
func (a Address) Dial(ctx context.Context) (*Connection, error) {
	body, err := Get(ctx, new(net.Dialer).DialContext, string(a), StreamPath)
	if err != nil {
		return nil, err
	}
	return &Connection{Body: body, Peer: string(a)}, nil
}

// DialFunc makes one network connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Get asks the server for a path, over a connection of its own that ends with the body. An answer other than 200 is an
// error with the server's own words.
func Get(ctx context.Context, dial DialFunc, address, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, &ConnectError{Problem: fmt.Sprintf("%q is no address of a server: %v", address, err), Advice: "the form is host:port", Err: err, Lasting: true}
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true, ResponseHeaderTimeout: patience}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, &ConnectError{
			Problem: fmt.Sprintf("no controller answers at %s: %v", address, err),
			Advice:  "check that rollcall-controller runs, and its --stream-address", Err: err,
		}
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024)) // what can be read of it is all there is
		return nil, &ConnectError{Problem: fmt.Sprintf("%s answers: %s", address, printable(strings.TrimSpace(string(text))))}
	}
	return response.Body, nil
}
