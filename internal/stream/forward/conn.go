package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
)

// connect makes one connection to the port of the pod. Nothing listens on this machine for it: another user of the machine
// could come in where client-go's own forwarder listens.
//
// client-go's dialers take no context. One that hangs is left behind when ctx ends, and closes what it gets in the end.
func (d *Dialer) connect(ctx context.Context, pod string) (net.Conn, error) {
	dialer, err := d.dialer(ctx, pod)
	if err != nil {
		return nil, err
	}
	type result struct {
		conn net.Conn
		err  error
	}
	made := make(chan result)
	go func() {
		conn, err := dial(dialer, d.port)
		select {
		case made <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-made:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dial opens the two streams of one forwarded connection (k8s.io/client-go tools/portforward handleConnection).
func dial(dialer httpstream.Dialer, port int) (net.Conn, error) {
	connection, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		_ = connection.Close()
		return nil, fmt.Errorf("the server forwards by protocol %q and not by %q", protocol, portforward.PortForwardProtocolV1Name)
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0") // the only one of this connection
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	said, err := connection.CreateStream(headers)
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("opening the stream of errors: %w", err)
	}
	_ = said.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("opening the stream of data: %w", err)
	}
	return &conn{data, said, connection}, nil
}

// conn is one forwarded connection.
type conn struct {
	data       httpstream.Stream
	said       httpstream.Stream // what the kubelet has to say, once it has ended
	connection httpstream.Connection
}

// lastWords is how long the kubelet may take to say why the data ended.
const lastWords = time.Second

// Read reports at the end what the kubelet said, if it said anything: nobody listens at the port, mostly. Some
// runtimes wait for this end to close its half first, and say nothing until then.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.data.Read(p)
	if err != io.EOF {
		return n, err
	}
	_ = c.data.Close()
	defer time.AfterFunc(lastWords, func() { _ = c.connection.Close() }).Stop()
	said, _ := io.ReadAll(io.LimitReader(c.said, 1024)) // a stream that breaks has said nothing
	if len(said) > 0 {
		return n, errors.New(strings.TrimSpace(string(said)))
	}
	return n, io.EOF
}

func (c *conn) Write(p []byte) (int, error) { return c.data.Write(p) }

// Close ends the connection to the API server too.
func (c *conn) Close() error {
	_ = c.data.Close()
	return c.connection.Close()
}

// A forwarded connection has no addresses of its own and no deadlines: whoever reads closes it to stop.

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "portforward" }
func (address) String() string  { return "pod" }
