package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/karpenter/losses"
)

const lossesLong = `What was lost with the nodes that went, when and why, and what is at risk now: from the PodLoss objects that the controller
writes, each in its pod's namespace. Without --namespace all namespaces are read, whatever the kubeconfig's context says.

With -o yaml the manifests of the lost pods that nothing makes again are printed, ready to be applied.

A pod is covered from its mark on. What vanished unmarked while no controller recorded is not known, and the answer says
when that was.`

const lossesExamples = `  # Since yesterday, everywhere
  kubectl rollcall losses

  # All that is kept of one namespace, with what was at risk and was not lost after all
  kubectl rollcall losses -n shop --since 0 --show-all -o wide

  # Bring the lost bare pods of the last hour back
  kubectl rollcall losses -n shop --since 1h -o yaml | kubectl apply -f -`

// lossesOptions is the command line of losses.
type lossesOptions struct {
	connection *genericclioptions.ConfigFlags
	since      time.Duration
	output     string
	showAll    bool
	lease      string

	// What complete makes of the above.
	leaseNamespace, leaseName string
}

func newLosses(connection *genericclioptions.ConfigFlags) *cobra.Command {
	o := &lossesOptions{connection: connection}
	command := &cobra.Command{
		Use:     "losses",
		Short:   "What was lost, when and why",
		Long:    lossesLong,
		Example: lossesExamples,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(command.Context(), command.OutOrStdout(), time.Now())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := command.Flags()
	fs.SortFlags = false
	fs.DurationVar(&o.since, "since", 24*time.Hour, "how far back; 0 for all that is kept")
	fs.StringVarP(&o.output, "output", "o", "table", "how the answer is shown: "+strings.Join(losses.Formats, ", ")+"; yaml prints manifests to apply")
	fs.BoolVar(&o.showAll, "show-all", false, "show also what was withdrawn: at risk, and not lost")
	fs.StringVar(&o.lease, "lease", "rollcall-system/rollcall-controller", "`namespace/name` of the controller's Lease, which says since when losses are recorded")
	complete(command, "output", losses.Formats...)
	return command
}

func (o *lossesOptions) complete() error {
	if o.since < 0 {
		return &usageError{fmt.Sprintf("--since is %v: it must not be negative", o.since), "for example --since 24h, or 0 for all that is kept"}
	}
	if !slices.Contains(losses.Formats, o.output) {
		return &usageError{fmt.Sprintf("there is no output format %q", o.output), "it is one of " + strings.Join(losses.Formats, ", ")}
	}
	var err error
	o.leaseNamespace, o.leaseName, err = splitLease(o.lease)
	return err
}

// splitLease reads --lease.
func splitLease(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", &usageError{fmt.Sprintf("malformed --lease %q: the form is namespace/name", text), "for example --lease rollcall-system/rollcall-controller"}
	}
	return namespace, name, nil
}

func (o *lossesOptions) run(ctx context.Context, out io.Writer, now time.Time) error {
	config, err := restConfig(o.connection)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	records, err := losses.List(ctx, client, *o.connection.Namespace)
	if err != nil {
		return o.explain(err, config.Host)
	}
	watched := losses.ReadWatched(ctx, typed, o.leaseNamespace, o.leaseName, now)
	var from time.Time
	if o.since > 0 {
		from = now.Add(-o.since)
	}
	return losses.NewReport(records, watched, from, now, o.showAll).Write(out, o.output)
}

// explain makes of a refused list what a person can act on.
func (o *lossesOptions) explain(err error, host string) error {
	switch {
	case apierrors.IsNotFound(err):
		return &clusterError{"nothing is recorded in this cluster: it does not know PodLoss",
			"apply deploy/crds/podlosses.yaml; the controller notices and records from then on", err}
	case apierrors.IsForbidden(err) && *o.connection.Namespace == "":
		return &clusterError{"you may not list podlosses of all namespaces", "ask for one that is yours: -n NAMESPACE", err}
	case apierrors.IsForbidden(err):
		return &clusterError{fmt.Sprintf("you may not list podlosses in namespace %s", *o.connection.Namespace),
			"ask for a role with the verb list on podlosses.rollcall.dev", err}
	}
	return explain(err, host)
}
