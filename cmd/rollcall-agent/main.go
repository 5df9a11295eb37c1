// rollcall-agent tells the cluster which static pods the kubelet of its node has accepted. This package has its flags and
// its wiring and nothing else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/build"
	"github.com/rollcall-dev/rollcall/readiness/agent"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// version is what the User-Agent says; --version says more.
var version = build.Version()

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const help = `rollcall-agent publishes, on its own Node, the static pods that the node's kubelet has accepted:

    the annotation rollcall.dev/static-pods

It asks, first that there is: the kubelet's PodsAPI socket (Kubernetes 1.37), the kubelet's /pods where that is turned on,
the manifest directory. Static pods of a URL are seen by the first two only.

With --standalone it also writes the condition readiness.example.com/StaticPodsMirrored, as the rollcall-controller does
otherwise. It keeps nothing on disk; what it wrote stays when it ends.

Examples:
  rollcall-agent --node-name "$NODE_NAME"
  rollcall-agent --node-name "$NODE_NAME" --standalone
  # Before kube-proxy runs, in a pod with hostNetwork
  rollcall-agent --node-name "$NODE_NAME" --api-server https://10.0.0.10:6443

Flags:
`

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := &options{}
	fs := pflag.NewFlagSet("rollcall-agent", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard) // the error says it all
	o.addFlags(fs)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, help, fs.FlagUsages())
		return exitOK
	case err == nil && o.version:
		fmt.Fprintf(stdout, "rollcall-agent %s\n", build.Line())
		return exitOK
	case err == nil:
		err = o.complete(fs.Args())
	}
	if err != nil {
		fmt.Fprintf(stderr, "rollcall-agent: %v\nrollcall-agent --help lists the flags.\n", err)
		return exitUsage
	}
	if err := start(ctx, o, stderr); err != nil {
		fmt.Fprintf(stderr, "rollcall-agent: %v\n", err)
		return exitError
	}
	return exitOK
}

// start runs the agent until ctx ends.
func start(ctx context.Context, o *options, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil)).With("node", o.node)
	// The client libraries' own lines are for debugging; what matters of them comes back as errors.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	bootID, err := o.bootID()
	if err != nil {
		return err
	}
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	client, err := agent.NewClient(config, o.node)
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	log.Info("starting", "version", version, "server", config.Host, "boot", bootID, "standalone", o.standalone)
	a := &agent.Agent{
		Config: agent.Config{
			Node: o.node, BootID: bootID, Identity: o.identity, Standalone: o.standalone,
			Taint: o.taint, Condition: o.condition, Settle: o.settle, HeldWarning: o.heldWarning,
		},
		Sources: o.sources(), API: client, Log: log, Now: time.Now,
	}
	a.Run(ctx)
	log.Info("ended; what is published stays")
	return nil
}

// gcPercent trades a little processor time, of which the agent uses next to none, for memory on every node.
const gcPercent = 40
