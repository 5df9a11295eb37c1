package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// forwardAnnotation on a pod names the ports of this machine that stand for its own, as "9790:40001,8081:40002". Without
// it each port stands for itself.
const forwardAnnotation = "cluster.rollcall.dev/forward"

// serveStreams starts the CRI's own streaming server on a free port of 127.0.0.1. It lives as long as the process.
func (r *fakeRuntime) serveStreams() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for port-forwards: %w", err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	if r.streams, err = streaming.NewServer(config, loopback{r}); err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, r.streams) }()
	return nil
}

// PortForward returns the address at which the kubelet finds the pod's ports.
func (r *fakeRuntime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streams.GetPortForward(request)
}

// loopback takes 127.0.0.1 for the inside of every pod: a process of this machine plays what runs in one.
type loopback struct{ runtime *fakeRuntime }

// PortForward copies between the stream and the port until either side ends.
func (l loopback) PortForward(ctx context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	target := strconv.Itoa(int(port))
	for pair := range strings.SplitSeq(l.runtime.sandboxAnnotation(sandbox, forwardAnnotation), ",") {
		if inside, outside, ok := strings.Cut(pair, ":"); ok && inside == target {
			target = outside
			break
		}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", target))
	if err != nil {
		return err
	}
	splice(conn, stream)
	return nil
}

// splice copies both ways, closes both ends when one way is over, and returns when both are.
func splice(a, b io.ReadWriteCloser) {
	var copying sync.WaitGroup
	oneWay := func(to, from io.ReadWriteCloser) {
		_, _ = io.Copy(to, from)
		_ = a.Close()
		_ = b.Close()
	}
	copying.Go(func() { oneWay(a, b) })
	copying.Go(func() { oneWay(b, a) })
	copying.Wait()
}

var errNoPrograms = errors.New("the containers of this runtime run no programs")

// Exec implements streaming.Runtime.
func (loopback) Exec(context.Context, string, []string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errNoPrograms
}

// Attach implements streaming.Runtime.
func (loopback) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errNoPrograms
}
