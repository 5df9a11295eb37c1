// Command demo shows rollcall's main job on a real control plane that it builds and starts by itself: a node gets a spot
// interruption taint, the pods that nothing recreates are marked, everything else is left alone, and the marks go when the
// node is healthy again. It checks every outcome and exits 0 only if all hold.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

func main() {
	keep := flag.Bool("keep", false, "leave the cluster up at the end and print its kubeconfig")
	timeout := flag.Duration("timeout", 60*time.Minute, "give up after this time; the first build of the control plane takes 10 to 20 minutes")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Usage: go run ./demo [flags]\n\n"+
			"Starts a real control plane with two kubelets on 127.0.0.1, interrupts a node, and shows and checks what rollcall does.\n\nFlags:\n")
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

// run starts the cluster, plays the interruption and stops everything that it started.
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
	return interruption(ctx, cluster, say)
}
