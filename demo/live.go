package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/tui"
)

// errQuit ends what goes on behind the live view when a person quits.
var errQuit = errors.New("the live view was quit")

// live has a storm go on and shows it in the live view until a person quits. Everything is told in plain lines before it,
// and in a file meanwhile.
func live(ctx context.Context, cluster *livecluster.Cluster, programs *liverollcall.Binaries, say *narrator) error {
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return err
	}
	if err := furnish(ctx, cluster, client, say); err != nil {
		return err
	}
	say.step("starting rollcall-controller")
	controller, err := programs.Controller(ctx, cluster, "--stream-address=127.0.0.1:0", "--release-taint")
	if err != nil {
		return err
	}
	defer controller.Stop()
	var address string
	if err := eventually(ctx, "the controller's stream", func(context.Context) (bool, error) {
		address, err = controller.Stream()
		return address != "", err
	}); err != nil {
		return controller.Explain(err)
	}
	log, err := os.CreateTemp("", "rollcall-demo-*.log")
	if err != nil {
		return fmt.Errorf("making a file for what happens: %w", err)
	}
	defer log.Close()
	say.step("opening the live view on it: q ends it, ? has the keys")
	err = show(ctx, address, log, &storm{client: client, say: say.on(log)})
	say.step("what the storm did is in %s", log.Name())
	return err
}

// show shows the controller's stream while the storm goes on, and returns when both have ended. What would be painted over
// the screen goes to the log.
func show(ctx context.Context, address string, log *os.File, weather *storm) error {
	in := os.Stdin // Quiet takes it from everybody else
	restore := tui.Quiet(log)
	defer restore()
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := weather.rage(ctx); err != nil {
			stop(fmt.Errorf("the storm broke off: %w", err))
		}
	})
	client := stream.NewClient(stream.Address(address), stream.ClientOptions{})
	running.Go(func() { _ = client.Run(ctx) }) // its error is a Tap's, and there is none
	err := tui.Run(ctx, tui.Options{
		Frames: client.Frames(), Context: "demo", Mode: "the demo's controller",
		ASCII: !tui.SpeaksUTF8(os.Getenv), Now: time.Now, In: in, Out: os.Stdout,
	})
	stop(errQuit)
	running.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, errQuit) {
		return cause
	}
	return err
}
