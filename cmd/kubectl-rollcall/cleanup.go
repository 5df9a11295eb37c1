package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/leftovers"
	"github.com/rollcall-dev/rollcall/readiness"
)

const cleanupLong = `Remove what rollcall left in the cluster: its annotations on pods and nodes, its condition on nodes, the PodLoss records, and
the controller's Lease. Uninstall first, the container in Karpenter's pod included: a controller or an agent that runs writes
them again.

A condition of another type is found by who wrote it, the Lease in whatever namespace it is. Only a taint or a Lease of another
name has to be given.

The installation itself (Deployment, DaemonSet, roles, policies, the CRD) is not touched, nor is a taint on a node.`

const cleanupExamples = `  # What is there
  kubectl rollcall cleanup --dry-run

  # Remove it
  kubectl rollcall cleanup --yes`

// cleanupOptions is the command line of cleanup.
type cleanupOptions struct {
	connection *genericclioptions.ConfigFlags
	names      leftovers.Names
	lease      string
	dryRun     bool
	yes        bool
	force      bool
}

func newCleanup(connection *genericclioptions.ConfigFlags) *cobra.Command {
	o := &cleanupOptions{connection: connection}
	command := &cobra.Command{
		Use:     "cleanup",
		Short:   "Remove what rollcall left in the cluster",
		Long:    cleanupLong,
		Example: cleanupExamples,
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
	fs.BoolVar(&o.dryRun, "dry-run", false, "say what would be removed and remove nothing")
	fs.BoolVarP(&o.yes, "yes", "y", false, "remove it: records of losses cannot be had back")
	fs.BoolVar(&o.force, "force", false, "remove it even while a controller or an agent runs")
	fs.StringVar(&o.names.Condition, "condition", readiness.DefaultCondition, "`type` of the condition that the installation writes; what rollcall wrote under another is found too")
	fs.StringVar(&o.names.Taint, "readiness-taint", readiness.TaintKey, "`key` of the taint that holds new nodes: those that still bear it are named")
	fs.StringVar(&o.lease, "lease", "rollcall-controller", "`[namespace/]name` of the controller's Lease; without a namespace it is looked for in all")
	return command
}

func (o *cleanupOptions) complete() (err error) {
	if o.yes && o.dryRun {
		return &usageError{"--yes and --dry-run contradict each other", "give one of them"}
	}
	if o.lease != "" && !strings.Contains(o.lease, "/") {
		o.names.LeaseName = o.lease
		return nil
	}
	o.names.LeaseNamespace, o.names.LeaseName, err = splitLease(o.lease)
	return err
}

func (o *cleanupOptions) run(ctx context.Context, out io.Writer, now time.Time) error {
	config, err := restConfig(o.connection)
	if err != nil {
		return err
	}
	clients, err := informers.NewClients(config)
	if err != nil {
		return err
	}
	found, err := leftovers.Find(ctx, clients, o.names)
	if err != nil {
		return explain(err, config.Host)
	}
	show(out, found)
	if found.Counts() == (leftovers.Counts{}) || o.dryRun {
		return nil
	}
	// 1. Whoever runs would write again what is removed.
	if err := stillRuns(found, now); err != nil && !o.force {
		return err
	}
	// 2. It cannot be undone.
	if !o.yes {
		return &usageError{"nothing was removed", "pass --yes to remove all of it, or --dry-run to see it only"}
	}
	// 3. What is there after it is not ours to be silent about.
	failed := found.Remove(ctx, clients)
	left, err := leftovers.Find(ctx, clients, o.names)
	if err != nil {
		return errors.Join(failed, explain(err, config.Host))
	}
	if rest := left.Counts(); rest != (leftovers.Counts{}) {
		return errors.Join(failed, &clusterError{"not all could be removed: " + inWords(rest) + " left",
			"run it again; if that does not help, something writes them anew: is rollcall uninstalled?", failed})
	}
	fmt.Fprintln(out, "removed; nothing is left")
	return failed
}

// stillRuns is why nothing should be removed now; nil where nobody would write it again.
func stillRuns(found *leftovers.Found, now time.Time) error {
	const advice = "uninstall rollcall first (docs/operations.md), or pass --force if you know better"
	if namespace, leader := found.Leader(now); leader != "" {
		return &clusterError{fmt.Sprintf("nothing was removed: the controller %s holds the Lease in namespace %s and would write it again", leader, namespace), advice, nil}
	}
	if n := len(found.Agents); n > 0 {
		return &clusterError{fmt.Sprintf("nothing was removed: %s would write it again (%s)", count(n, "agent"), few(found.Agents)), advice, nil}
	}
	return nil
}

func show(out io.Writer, found *leftovers.Found) {
	counts := found.Counts()
	if counts == (leftovers.Counts{}) {
		fmt.Fprintln(out, "rollcall left nothing in this cluster")
	} else {
		fmt.Fprintf(out, "rollcall left %s\n", inWords(counts))
	}
	if len(found.Held) > 0 {
		fmt.Fprintf(out, "the readiness taint stays on %s: %s\n", count(len(found.Held), "node"), few(found.Held))
	}
}

func inWords(c leftovers.Counts) string {
	return strings.Join([]string{
		count(c.PodAnnotations, "annotation") + " on pods", count(c.NodeAnnotations, "annotation") + " on nodes",
		count(c.Conditions, "condition"), count(c.Records, "record") + " of losses", count(c.Leases, "Lease"),
	}, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// few names the first of many.
func few(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
