// Command demo shows rollcall's two jobs on a real control plane that it builds and starts by itself.
//
// On a terminal it opens the live view while an interruption storm goes on. Elsewhere, and with --plain, it prints plain
// lines. A node gets a spot interruption taint: the pods that nothing recreates are marked, everything else is left alone,
// and the marks go when the node is healthy again. Then nodes join whose static pods are not on the books yet: without
// rollcall the scheduler over-fills them, with it no pod fails. It checks every outcome and exits 0 only if all hold.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/tui"
)

// options is the command line.
type options struct {
	keep, plain bool
	timeout     time.Duration
}

func (o *options) addFlags() {
	flag.BoolVar(&o.keep, "keep", false, "leave the cluster up at the end and print its kubeconfig")
	flag.BoolVar(&o.plain, "plain", false, "print plain lines and check every outcome on a terminal too, where else the live view opens")
	flag.DurationVar(&o.timeout, "timeout", 60*time.Minute, "give the plain run up after this time; building the control plane, which takes 10 to 20 minutes once, does not count")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Usage: go run ./demo [flags]\n\n"+
			"Starts a real control plane and kubelets on 127.0.0.1 and shows what rollcall does there: on a terminal in the live\n"+
			"view, while nodes go and come until q is pressed; elsewhere, and with --plain, in lines, while it interrupts a node,\n"+
			"lets nodes join and checks every outcome.\n\nFlags:\n")
		flag.PrintDefaults()
	}
}

func main() {
	var o options
	o.addFlags()
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "error: unexpected argument %q; the demo takes flags only, see go run ./demo --help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// A scene is played on a cluster. Where it checks outcomes, its error has those that were not as they should be.
type scene func(context.Context, *livecluster.Cluster, *liverollcall.Binaries, *narrator) error

// run shows the live view on a terminal, and otherwise plays all scenes in plain lines.
func (o *options) run(ctx context.Context) error {
	if _, err := livecluster.Binary(ctx, os.Stdout, false); err != nil {
		return err
	}
	if !o.plain && tui.NeedsTerminal(os.Stdin, os.Stdout) == nil {
		return o.stage(ctx, live, liverollcall.Controller)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("--timeout of %s is over", o.timeout))
	defer cancel()
	return o.stage(ctx, plain, liverollcall.Controller, liverollcall.Agent, liverollcall.Plugin)
}

// plain plays what is checked, in this order, on one cluster.
func plain(ctx context.Context, cluster *livecluster.Cluster, programs *liverollcall.Binaries, say *narrator) error {
	for _, play := range []scene{interruption, arrival} {
		if err := play(ctx, cluster, programs, say); err != nil {
			return err
		}
	}
	say.step("all outcomes as they should be")
	return nil
}

// stage starts the cluster, builds what the scene needs, plays it and stops everything that was started.
func (o *options) stage(ctx context.Context, play scene, needs ...string) error {
	say := newNarrator(os.Stdout)
	say.step("starting a control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager")
	cluster, err := livecluster.Start(ctx, livecluster.Options{Progress: os.Stdout, Detached: o.keep})
	if err != nil {
		return err
	}
	if o.keep {
		defer func() {
			say.step("the cluster stays up:\n\n  export KUBECONFIG=%s\n  %s down --dir %s   # stops it", cluster.Kubeconfig(), cluster.Command(), cluster.Dir())
		}()
	} else {
		defer cluster.Stop()
	}
	say.step("building %s", strings.Join(needs, ", "))
	bin, err := os.MkdirTemp("", "rollcall-bin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	programs, err := liverollcall.Build(ctx, bin, needs...)
	if err != nil {
		return err
	}
	return play(ctx, cluster, programs, say)
}

// wrong makes an error of outcomes that were not as they should be, if there are any.
func wrong(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New("not as it should be:\n  " + strings.Join(problems, "\n  "))
}
