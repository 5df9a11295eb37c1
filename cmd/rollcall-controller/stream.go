package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/rollcall-dev/rollcall/internal/health"
	"github.com/rollcall-dev/rollcall/internal/leader"
	"github.com/rollcall-dev/rollcall/internal/stream"
)

// streamOptions is what the command line says of the stream.
type streamOptions struct{ address string }

func (o *streamOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.address, "stream-address", "127.0.0.1:"+strconv.Itoa(stream.Port), "address of the stream for kubectl rollcall, on loopback: who may forward ports of this pod may read it; empty for none")
}

// complete checks the flags.
func (o *streamOptions) complete() error {
	if o.address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.address)
	switch {
	case err != nil:
		return fmt.Errorf("--stream-address %q: the form is host:port, or empty for no stream", o.address)
	case host != "localhost" && !net.ParseIP(host).IsLoopback():
		return fmt.Errorf("--stream-address %q is not on loopback, such as 127.0.0.1:%d: whoever reaches the stream reads it without asking the API server; kubectl rollcall forwards a port to it", o.address, stream.Port)
	}
	return nil
}

// newHub makes what the reconcilers show themselves in; nil where there is no stream, which costs nothing.
func newHub(o *options) *stream.Hub {
	if o.stream.address == "" {
		return nil
	}
	if err := exposed(os.Getenv); err != nil {
		slog.Error("the stream is not served", "error", err)
		return nil
	}
	return stream.NewHub(stream.Server{
		Boot: string(uuid.NewUUID()), Identity: o.leader.Identity, Program: version, Started: time.Now(), DryRun: o.dryRun,
	}, time.Now)
}

// exposed is an error where loopback is not the pod's alone: on the host's network every process of the node could read
// the names of all pods without asking the API server. A pod knows by the downward API; one that was not told is taken
// to be on it.
func exposed(env func(string) string) error {
	if env("KUBERNETES_SERVICE_HOST") == "" {
		return nil // no pod: the machine is its owner's
	}
	pod, host := net.ParseIP(env("POD_IP")), net.ParseIP(env("HOST_IP"))
	switch {
	case pod == nil || host == nil:
		return errors.New("it is not known whether this pod is on the host's network: set POD_IP and HOST_IP from status.podIP and status.hostIP (the chart does), or --stream-address= for no stream")
	case pod.Equal(host):
		return errors.New("this pod is on the host's network, where other processes of the node could read it: take hostNetwork away, or set --stream-address= for no stream")
	}
	return nil
}

// serveStream serves the hub until ctx ends. Only who leads knows anything: others name the leader. An address that is
// taken is no reason not to mark pods.
func serveStream(ctx context.Context, o *options, hub *stream.Hub, elector *leader.Elector) {
	if hub == nil {
		return
	}
	handler := &stream.Handler{Hub: hub}
	if o.leader.Elect {
		handler.Leads = func() (bool, string) {
			holder := elector.Holder()
			return holder == o.leader.Identity, holder
		}
	}
	served, err := health.Serve(ctx, "the stream", o.stream.address, handler)
	if err != nil {
		slog.Error("the stream is not served: choose another --stream-address, or --stream-address= for none", "error", err)
		return
	}
	slog.Info("serving the stream", "address", served.String())
}
