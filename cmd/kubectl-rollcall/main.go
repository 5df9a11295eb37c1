// kubectl-rollcall asks, as kubectl rollcall, what becomes of pods when a node goes. This package has its flags and its
// wiring and nothing else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/karpenter"

	"github.com/rollcall-dev/rollcall/internal/build"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitHurts = 3
)

// version is what the User-Agent says; --version says more.
var version = build.Version()

func main() {
	// What the client libraries log is no message for people; errors reach them as errors.
	klog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// errHurts is the answer that something is lost or stranded; it has been shown already.
var errHurts = errors.New("something is lost or stranded")

// run is main without the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errHurts):
		return exitHurts
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "error: interrupted")
		return exitError
	}
	fmt.Fprintf(stderr, "error: %v\n", err)
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	if errors.As(err, &wrong) {
		return exitUsage
	}
	return exitError
}

// hintOf returns the way out that an error knows.
func hintOf(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}

// A usageError is what the user got wrong on the command line.
type usageError struct {
	problem string
	advice  string
}

func (e *usageError) Error() string { return e.problem }

// Hint returns the way out.
func (e *usageError) Hint() string { return e.advice }

func newRoot() *cobra.Command {
	connection := genericclioptions.NewConfigFlags(true)
	connection.CacheDir = nil // nothing is cached on disk
	root := &cobra.Command{
		Use:   "kubectl-rollcall",
		Short: "Who will not come back when a node goes",
		Long: `rollcall tells, for the pods of a node that goes, which are lost for good, which find no place, and which come back.

As kubectl-rollcall in the PATH it is also "kubectl rollcall"; with kubectl_complete-rollcall beside it, kubectl completes
it too. "kubectl-rollcall completion SHELL" prints the completion of kubectl-rollcall itself.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl rollcall"},
		Version:       build.Line(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
	}
	ui := &uiOptions{source: source{connection: connection}, disruption: karpenter.DefaultConfig()}
	root.RunE = func(command *cobra.Command, args []string) error {
		if len(args) == 0 {
			if err := ui.complete(); err != nil {
				return err
			}
			return ui.run(command.Context(), command.InOrStdin(), command.OutOrStdout())
		}
		advice := "kubectl rollcall --help lists the commands"
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			advice = "did you mean kubectl rollcall " + near[0] + "?"
		}
		return &usageError{fmt.Sprintf("there is no command %q", args[0]), advice}
	}
	ui.addFlags(root)
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return &usageError{err.Error(), command.CommandPath() + " --help lists the flags"}
	})
	root.SetVersionTemplate("kubectl rollcall {{.Version}}\n")
	connection.AddFlags(root.PersistentFlags())
	root.AddCommand(newCheck(connection), newMirrors(connection), newLosses(connection), newStream(connection), newCleanup(connection), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "kubectl rollcall %s\n", build.Line())
			return err
		},
	}
}

func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Sprintf("unexpected argument %q", args[0]), command.CommandPath() + " --help lists the flags"}
	}
	return nil
}
