package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/internal/stream/forward"
)

// A source is where a stream is read from: the controller in the cluster, an address, or a recording.
type source struct {
	connection *genericclioptions.ConfigFlags
	namespace  string
	lease      string
	port       int
	address    string
	replay     string
	speed      float64
}

func (s *source) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.namespace, "controller-namespace", "rollcall-system", "the controller's namespace")
	fs.StringVar(&s.lease, "lease", "rollcall-controller", "`name` of the controller's Lease there, whose holder is asked")
	fs.IntVar(&s.port, "stream-port", stream.Port, "the port of the stream in the controller's pod")
	fs.StringVar(&s.address, "stream-address", "", "read the stream at `host:port` instead, without the cluster")
	fs.StringVar(&s.replay, "replay", "", "show a recording instead, made by kubectl rollcall stream --record `FILE`")
	fs.Float64Var(&s.speed, "speed", 1, "how many times faster a recording is shown than it was")
}

// complete checks the flags.
func (s *source) complete() error {
	switch {
	case s.address != "" && s.replay != "":
		return &usageError{"--stream-address and --replay exclude each other", "a recording needs no address"}
	case s.speed <= 0:
		return &usageError{fmt.Sprintf("--speed is %v: it must be above zero", s.speed), "1 is as fast as it was, 10 ten times faster"}
	}
	return nil
}

// dialer returns what opens the stream. It asks for the cluster's address and credentials only where they are needed.
func (s *source) dialer() (stream.Dialer, error) {
	switch {
	case s.replay != "":
		return stream.Replay{Path: s.replay, Speed: s.speed}, nil
	case s.address != "":
		return stream.Address(s.address), nil
	}
	config, err := restConfig(s.connection)
	if err != nil {
		return nil, err
	}
	return forward.New(config, s.namespace, s.lease, s.port)
}

// An advising dialer has errors say the way out in the same sentence, for a screen that has one line for both.
type advising struct{ stream.Dialer }

func (a advising) Dial(ctx context.Context) (*stream.Connection, error) {
	connection, err := a.Dialer.Dial(ctx)
	var e *stream.ConnectError
	if !errors.As(err, &e) {
		return connection, err
	}
	told := *e
	if e.Advice != "" {
		told.Problem += " (" + e.Advice + ")"
	}
	if apierrors.IsNotFound(e.Err) {
		told.Problem += "; kubectl rollcall --local shows the same with a controller of your own, which writes nothing"
	}
	return connection, &told
}
