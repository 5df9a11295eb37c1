package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/tui"
)

// uiOptions is the command line of the live view, which is the command without a name.
type uiOptions struct {
	source
	local      bool
	disruption *karpenter.Config // of the controller in this process
	ascii      bool
	log        string
}

func (o *uiOptions) addFlags(command *cobra.Command) {
	fs := command.Flags()
	o.source.addFlags(fs)
	fs.BoolVar(&o.local, "local", false, "run the controller in this process, without writing anything, where the cluster has none")
	o.disruption.AddFlags(fs)
	fs.BoolVar(&o.ascii, "ascii", false, "draw with ASCII alone; also where the locale is not UTF-8")
	fs.StringVar(&o.log, "log-file", "", "write what the Kubernetes client and credential plugins say to a `FILE`; without it that is dropped")
}

func (o *uiOptions) complete() error {
	if o.local && (o.address != "" || o.replay != "") {
		return &usageError{"--local excludes --stream-address and --replay", "--local makes the stream itself"}
	}
	if err := o.disruption.Validate(); err != nil {
		return &usageError{err.Error(), "kubectl rollcall --help lists the flags"}
	}
	return o.source.complete()
}

// run shows the live view until a person quits.
func (o *uiOptions) run(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := tui.NeedsTerminal(in, out); err != nil {
		return err
	}
	log, err := openLog(o.log)
	if err != nil {
		return err
	}
	defer log.Close()
	restore := tui.Quiet(log)
	defer restore()

	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer waitBriefly(&running)
	defer stop()
	dialer, mode, err := o.open(ctx, &running)
	if err != nil {
		return err
	}
	client := stream.NewClient(advising{dialer}, stream.ClientOptions{})
	running.Go(func() { _ = client.Run(ctx) }) // its error is a Tap's, and there is none
	return tui.Run(ctx, tui.Options{
		Frames: client.Frames(), Context: contextName(o.connection, o.address, o.replay), Mode: mode,
		ASCII: o.ascii || !tui.SpeaksUTF8(os.Getenv), Now: time.Now, In: in, Out: out,
	})
}

// lastWait is how long what runs may take to end once a person has quit.
const lastWait = time.Second

// waitBriefly waits for what was told to end, but not for ever: client-go runs a credential plugin within the request and
// without its context (k8s.io/client-go plugin/pkg/client/auth/exec RoundTrip), so that a login that waits for a browser
// ends when it likes. The process ends then anyway, and nothing that it leaves behind writes anything.
func waitBriefly(running *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
	}()
	timer := time.NewTimer(lastWait)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// open returns what opens the stream, and what people should know of who is behind it.
func (o *uiOptions) open(ctx context.Context, running *sync.WaitGroup) (stream.Dialer, string, error) {
	mode := tui.ModeCluster
	switch {
	case o.local:
		dialer, err := o.startLocal(ctx, running)
		return dialer, tui.ModeLocal, err
	case o.replay != "":
		mode = tui.ModeRecording
	case o.address != "":
		mode = "the controller at " + o.address
	}
	dialer, err := o.dialer()
	return dialer, mode, err
}

func openLog(path string) (*os.File, error) {
	if path == "" {
		path = os.DevNull
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return file, nil
}

// contextName is the kubeconfig's context, or what is shown in place of a cluster.
func contextName(connection *genericclioptions.ConfigFlags, address, replay string) string {
	switch {
	case replay != "":
		return replay
	case address != "":
		return address
	case *connection.Context != "":
		return *connection.Context
	}
	raw, err := connection.ToRawKubeConfigLoader().RawConfig()
	if err != nil || raw.CurrentContext == "" {
		return "this cluster"
	}
	return raw.CurrentContext
}
