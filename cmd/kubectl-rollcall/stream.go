package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

const streamLong = `What the controller sees and does, as it happens: the nodes that go with their pods, the nodes that come, the workqueue, and
every decision with its reason.

With -o json every record is one line, as docs/stream.md describes: first a snapshot of everything, then what changed. With
-o text the decisions and the nodes' states are told in words.

The stream comes from the pod that holds the controller's Lease, through the API server; when another pod takes the Lease,
it goes on from there. Reading needs, in the controller's namespace: get leases, get pods, get and create pods/portforward.`

const streamExamples = `  # Watch
  kubectl rollcall stream

  # The pods that are lost with the nodes that go now
  kubectl rollcall stream --once -o json | jq -r '.pods[]? | select(.verdict=="Lost") | .namespace+"/"+.name'

  # Record, and see it again ten times as fast
  kubectl rollcall stream --record spot.ndjson
  kubectl rollcall --replay spot.ndjson --speed 10`

var streamFormats = []string{"text", "json"}

// streamOptions is the command line of stream.
type streamOptions struct {
	source
	once   bool
	output string
	record string
}

func newStream(connection *genericclioptions.ConfigFlags) *cobra.Command {
	o := &streamOptions{source: source{connection: connection}}
	command := &cobra.Command{
		Use:     "stream",
		Short:   "What the controller sees and does, as it happens",
		Long:    streamLong,
		Example: streamExamples,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(command.Context(), command.OutOrStdout(), command.ErrOrStderr())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := command.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.once, "once", false, "print what is true now, and end")
	fs.StringVarP(&o.output, "output", "o", "text", "how it is shown: "+strings.Join(streamFormats, ", "))
	fs.StringVar(&o.record, "record", "", "also write all records to a new `FILE`, for --replay")
	o.addFlags(fs)
	complete(command, "output", streamFormats...)
	return command
}

func (o *streamOptions) complete() error {
	if !slices.Contains(streamFormats, o.output) {
		return &usageError{fmt.Sprintf("there is no output format %q", o.output), "it is one of " + strings.Join(streamFormats, ", ")}
	}
	return o.source.complete()
}

// errSeen ends a client that was to read one snapshot.
var errSeen = errors.New("one snapshot was read")

// run prints the stream until ctx ends, or a recording does. A first connection that fails is an error; later ones are
// told and tried again.
func (o *streamOptions) run(ctx context.Context, out, messages io.Writer) error {
	dialer, err := o.dialer()
	if err != nil {
		return err
	}
	var taps []func([]byte) error
	if o.record != "" {
		file, err := os.OpenFile(o.record, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		defer closeRecording(file)
		taps = append(taps, stream.NewRecorder(file, time.Now).Record)
	}
	if o.output == "json" {
		taps = append(taps, func(line []byte) error {
			_, err := out.Write(append(bytes.Clone(line), '\n'))
			return err
		})
	}
	client := stream.NewClient(dialer, stream.ClientOptions{Tap: func(line []byte) error {
		for _, tap := range taps {
			if err := tap(line); err != nil {
				return err
			}
		}
		if o.once && o.output == "json" {
			return errSeen
		}
		return nil
	}})
	return o.follow(ctx, client, out, messages)
}

// closeRecording leaves no file without a record: it would keep the same command from being tried again. The file is made
// before there is a record so that one that cannot be written is told before anything is asked.
func closeRecording(file *os.File) {
	info, err := file.Stat()
	_ = file.Close() // each record was written at once, or its error told
	if err == nil && info.Size() == 0 {
		_ = os.Remove(file.Name()) // then it stays, which the next try tells
	}
}

// follow shows the client's frames until there are no more.
func (o *streamOptions) follow(ctx context.Context, client *stream.Client, out, messages io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var ended error
	running.Go(func() { ended = client.Run(ctx) })
	text := &narrator{out: out}
	var last stream.Phase
	for frame := range client.Frames() {
		changed := frame.Phase != last
		last = frame.Phase
		switch {
		case frame.State == nil && frame.Err != nil && !errors.Is(frame.Err, stream.ErrEnded):
			return o.told(frame.Err)
		case changed && frame.Phase == stream.Disconnected:
			fmt.Fprintf(messages, "connection lost: %s; trying again\n", frame.Notice)
		case changed && frame.Phase == stream.Live && frame.Reconnects > 0:
			fmt.Fprintf(messages, "connected to %s\n", frame.Peer)
		}
		if o.output != "text" || frame.State == nil {
			continue
		}
		if err := text.tell(frame); err != nil {
			return err
		}
		if o.once {
			return nil
		}
	}
	running.Wait() // the frames are over, and so is the client
	if errors.Is(ended, errSeen) {
		return nil
	}
	return ended
}

// told names the context whose cluster was asked, where there are several: the wrong one is the first thing to suspect.
func (o *streamOptions) told(err error) error {
	var refused *stream.ConnectError
	if o.address != "" || o.replay != "" || !errors.As(err, &refused) {
		return err
	}
	raw, rawErr := o.connection.ToRawKubeConfigLoader().RawConfig()
	if rawErr != nil || len(raw.Contexts) < 2 {
		return err
	}
	context := raw.CurrentContext
	if *o.connection.Context != "" {
		context = *o.connection.Context
	}
	advice := fmt.Sprintf("this is context %q, one of %d: --context chooses another", context, len(raw.Contexts))
	if refused.Advice != "" {
		advice = refused.Advice + "; " + advice
	}
	return &clusterError{refused.Problem, advice, err}
}
