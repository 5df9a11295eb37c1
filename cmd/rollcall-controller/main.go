// The rollcall-controller marks the pods that will be lost with their node, the moment the node is marked for
// disruption, and holds new nodes until their static pods are mirrored. This package has its flags and its wiring and nothing else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/internal/build"
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

// errUsage marks what the user got wrong on the command line.
var errUsage = errors.New("wrong usage")

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	command := newCommand(stderr)
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "rollcall-controller: %v\nrollcall-controller --help lists the flags.\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "rollcall-controller: %v\n", err)
	return exitError
}

func newCommand(stderr io.Writer) *cobra.Command {
	o := newOptions()
	command := &cobra.Command{
		Use:   "rollcall-controller",
		Short: "Marks the pods that will be lost with their node, and holds new nodes until their static pods are mirrored",
		Long: `rollcall-controller watches nodes, pods and their owners. When a node is marked for disruption it leaves the
annotation rollcall.dev/at-risk on each of its pods that nothing will make again, and an Event; when the node is
healthy again it removes them. A new node it holds by a condition until the node's static pods are mirrored. It writes to
pods/status, nodes/status and Events, and to its Lease; with --release-taint to nodes.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(fmt.Errorf("unexpected argument %q: everything is a flag", args[0]))
			}
			return nil
		},
		Version:       build.Line(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return usage(err)
			}
			return start(command.Context(), o, stderr)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	command.CompletionOptions.DisableDefaultCmd = true
	o.addFlags(command.Flags())
	return command
}

func usage(err error) error { return usageError{err} }

// usageError is an error that is errUsage, without saying so.
type usageError struct{ error }

func (usageError) Is(target error) bool { return target == errUsage }
