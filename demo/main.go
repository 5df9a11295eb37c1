// Command demo shows rollcall's two jobs on a real control plane that it builds and starts by itself. A node gets a spot
// interruption taint: the pods that nothing recreates are marked, everything else is left alone, and the marks go when the
// node is healthy again. Then nodes join whose static pods are not on the books yet: without rollcall the scheduler
// over-fills them, with it no pod fails. It checks every outcome and exits 0 only if all hold.
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
)

func main() {
	keep := flag.Bool("keep", false, "leave the cluster up at the end and print its kubeconfig")
	timeout := flag.Duration("timeout", 60*time.Minute, "give up after this time; the first build of the control plane takes 10 to 20 minutes")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Usage: go run ./demo [flags]\n\n"+
			"Starts a real control plane and kubelets on 127.0.0.1, interrupts a node, lets nodes join, and shows and checks what rollcall does.\n\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "error: unexpected argument %q; the demo takes flags only, see go run ./demo --help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if err := run(ctx, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// scenes are what is played, in this order, on one cluster. Each returns what was not as it should be.
var scenes = []func(context.Context, *livecluster.Cluster, *liverollcall.Binaries, *narrator) error{interruption, arrival}

// run starts the cluster, plays the scenes and stops everything that it started.
func run(ctx context.Context, keep bool) error {
	say := newNarrator(os.Stdout)
	say.step("starting a control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager")
	cluster, err := livecluster.Start(ctx, livecluster.Options{Progress: os.Stdout, Detached: keep})
	if err != nil {
		return err
	}
	if keep {
		defer func() {
			say.step("the cluster stays up:\n\n  export KUBECONFIG=%s\n  %s down --dir %s   # stops it", cluster.Kubeconfig(), cluster.Command(), cluster.Dir())
		}()
	} else {
		defer cluster.Stop()
	}
	say.step("building rollcall-controller, rollcall-agent and kubectl-rollcall")
	bin, err := os.MkdirTemp("", "rollcall-bin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	programs, err := liverollcall.Build(ctx, bin, liverollcall.Controller, liverollcall.Agent, liverollcall.Plugin)
	if err != nil {
		return err
	}
	for _, play := range scenes {
		if err := play(ctx, cluster, programs, say); err != nil {
			return err
		}
	}
	say.step("all outcomes as they should be")
	return nil
}

// wrong makes an error of outcomes that were not as they should be, if there are any.
func wrong(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New("not as it should be:\n  " + strings.Join(problems, "\n  "))
}
