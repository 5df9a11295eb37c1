package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/check"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/inventory"
)

const checkLong = `What would become of the pods of a node if it went now, the machine and all: who is lost for good, who finds no place,
who comes back. All nodes that are marked for disruption go together; a node that is not is asked about as if it went too.
A node that the cluster does not have any more, but that pods are still bound to, counts as deleted, and is reported too.

With -f nothing is asked of a cluster: nodes, pods, their owners, volumes, NodeClaims and NodePools are taken from the files,
and all nodes in them are reported unless named, selected or disrupted ones are asked for. An owner of a kind of which the
files hold nothing is assumed to exist; of a kind that they do hold, without that UID, it is gone.

--namespace (one, or several with commas) and --verdict narrow what is shown, and with it the counts and the exit status.
Without --namespace all namespaces are shown, whatever the kubeconfig's context says.

Exit status: 0 nothing lost or stranded among what is shown, 3 something is, 1 an error, 2 wrong usage.`

const checkExamples = `  # One node of the cluster, and every node that is on its way out
  kubectl rollcall check ip-10-0-3-17
  kubectl rollcall check --all-disrupted

  # On a quiet day: what would any node take with it, spot nodes first, by who can mend it
  kubectl rollcall check --all
  kubectl rollcall check --all --group-by namespace -n shop,etl

  # Without a cluster
  kubectl get nodes,pods,rs,rc,sts,ds,jobs,pdb,pvc,pv,nodeclaims,nodepools -A -o json > cluster.json
  kubectl rollcall check -f cluster.json --now 2026-12-01T12:00:00Z -o json`

// checkOptions is the command line of check.
type checkOptions struct {
	connection *genericclioptions.ConfigFlags
	disruption *karpenter.Config

	files        []string
	selector     string
	disrupted    bool
	all          bool
	now          string
	output       string
	verdicts     []string
	ownerKinds   []string
	assumeGrowth bool
	showAll      bool
	groupBy      string

	// What complete makes of the above.
	selection check.Selection
	question  check.Question
	want      inventory.Want
}

func newCheck(connection *genericclioptions.ConfigFlags) *cobra.Command {
	o := &checkOptions{connection: connection, disruption: karpenter.DefaultConfig()}
	command := &cobra.Command{
		Use:     "check NODE... | --all-disrupted | --all | -l SELECTOR | -f FILE...",
		Short:   "What becomes of the pods of a node if it goes now",
		Long:    checkLong,
		Example: checkExamples,
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.complete(args, time.Now()); err != nil {
				return err
			}
			return o.run(command.Context(), command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr())
		},
		ValidArgsFunction: o.completeNodes,
	}
	fs := command.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.disrupted, "all-disrupted", false, "the nodes that are marked for disruption")
	fs.BoolVar(&o.all, "all", false, "every node, spot nodes first, grouped by --group-by")
	fs.StringVarP(&o.selector, "selector", "l", "", "the nodes that this label selector matches")
	fs.StringArrayVarP(&o.files, "filename", "f", nil, "a `file` of Kubernetes objects, YAML or JSON, - for standard input; repeatable; no cluster is asked")
	fs.StringVar(&o.now, "now", "", "the `time` of the question, RFC3339; the present where not given")
	fs.StringVarP(&o.output, "output", "o", "table", "how the answer is shown: "+strings.Join(check.Formats, ", "))
	fs.StringSliceVar(&o.verdicts, "verdict", nil, "show only pods of these verdicts: Lost, Stranded, Unsure, Returns, GoesWithNode, Static, Finished")
	fs.BoolVar(&o.showAll, "show-all", false, "list also the pods that are only counted otherwise: those that return, go with the node, are static or finished")
	fs.StringVar(&o.groupBy, "group-by", "", "with --all: owner (as without the flag), namespace or node")
	fs.BoolVar(&o.assumeGrowth, "assume-growth", false, "take it that cluster-autoscaler adds a node for whoever finds no room")
	fs.StringSliceVar(&o.ownerKinds, "owner-kinds", nil, "`group/Kind` of pod owners to look up in the cluster beyond the built-in ones; repeatable; others are assumed to exist")
	o.disruption.AddFlags(fs)
	complete(command, "output", check.Formats...)
	complete(command, "group-by", "owner", "namespace", "node")
	complete(command, "verdict", slices.Sorted(maps.Values(verdictNames))...)
	return command
}

func complete(command *cobra.Command, flag string, values ...string) {
	err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is not there: a slip in this file
	}
}

// complete checks the command line as a whole.
func (o *checkOptions) complete(names []string, now time.Time) error {
	steps := []func() error{
		func() error { return o.completeSelection(names) },
		o.completeView,
		func() error { return o.completeNow(now) },
		o.completeFilter,
		o.completeOwnerKinds,
		o.disruption.Validate,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return wrongUsage(err)
		}
	}
	o.question.Config = o.disruption
	o.question.AssumeGrowth = o.assumeGrowth
	return nil
}

// wrongUsage makes sure that an error of the command line counts as one.
func wrongUsage(err error) error {
	if wrong, ok := err.(*usageError); ok {
		return wrong
	}
	return &usageError{err.Error(), "kubectl rollcall check --help lists the flags"}
}

func (o *checkOptions) completeSelection(names []string) error {
	ways := 0
	for _, given := range []bool{len(names) > 0, o.selector != "", o.disrupted, o.all} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return &usageError{"node names, -l, --all-disrupted and --all exclude each other", "choose one of them"}
	case ways == 0 && len(o.files) == 0:
		return &usageError{"which nodes?", "name them, or pass --all-disrupted, --all, -l SELECTOR or -f FILE; kubectl rollcall check --help has examples"}
	}
	o.selection = check.Selection{Names: names, Disrupted: o.disrupted}
	if o.selector != "" {
		selector, err := labels.Parse(o.selector)
		if err != nil {
			return &usageError{fmt.Sprintf("-l is no label selector: %v", err), "for example -l karpenter.sh/capacity-type=spot"}
		}
		o.selection.Labels = selector
	}
	return nil
}

func (o *checkOptions) completeView() error {
	switch {
	case !slices.Contains(check.Formats, o.output):
		return &usageError{fmt.Sprintf("there is no output format %q", o.output), "-o takes " + strings.Join(check.Formats, ", ")}
	case o.groupBy != "" && !slices.Contains([]string{"owner", "namespace", "node"}, o.groupBy):
		return &usageError{fmt.Sprintf("--group-by does not know %q", o.groupBy), "it takes owner, namespace or node"}
	case o.groupBy != "" && !o.all:
		return &usageError{"--group-by is for --all", "add --all"}
	case o.all && o.groupBy == "":
		o.groupBy = "owner"
	}
	return nil
}

func (o *checkOptions) completeNow(now time.Time) error {
	if o.now == "" {
		o.question.Now = now
		return nil
	}
	at, err := time.Parse(time.RFC3339, o.now)
	if err != nil {
		return &usageError{fmt.Sprintf("--now is no RFC3339 time: %q", o.now), "for example --now " + now.UTC().Format(time.RFC3339)}
	}
	o.question.Now = at
	return nil
}

// verdictNames are the verdicts by their names in lower case.
var verdictNames = func() map[string]string {
	names := map[string]string{}
	for _, v := range []fate.Verdict{fate.Lost, fate.Stranded, fate.Unsure, fate.Returns, fate.GoesWithNode, fate.Static, fate.Finished} {
		names[strings.ToLower(string(v))] = string(v)
	}
	return names
}()

func (o *checkOptions) completeFilter() error {
	filter := check.Filter{}
	for _, name := range o.verdicts {
		verdict, known := verdictNames[strings.ToLower(name)]
		if !known {
			return &usageError{fmt.Sprintf("--verdict does not know %q", name), "it takes " + strings.Join(slices.Sorted(maps.Values(verdictNames)), ", ")}
		}
		filter.Verdicts = append(filter.Verdicts, fate.Verdict(verdict))
	}
	for namespace := range strings.SplitSeq(*o.connection.Namespace, ",") {
		if namespace != "" {
			filter.Namespaces = append(filter.Namespaces, namespace)
		}
	}
	o.question.Filter = filter
	return nil
}

func (o *checkOptions) completeOwnerKinds() error {
	o.want = inventory.Want{Placement: true}
	for _, text := range o.ownerKinds {
		group, kind, ok := strings.Cut(text, "/")
		if !ok || !strings.Contains(group, ".") || kind == "" || strings.Contains(kind, "/") {
			return &usageError{
				fmt.Sprintf("malformed --owner-kinds %q", text),
				"the form is group/Kind, for example argoproj.io/Workflow; built-in kinds are looked up anyway",
			}
		}
		o.want.OwnerKinds = append(o.want.OwnerKinds, schema.GroupKind{Group: group, Kind: kind})
	}
	return nil
}

// run reads the objects, asks and shows the answer.
func (o *checkOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	inv, err := o.read(ctx, stdin)
	if err != nil {
		return err
	}
	o.notify(inv, stderr)
	if len(inv.Nodes())+len(inv.Vanished()) == 0 {
		return o.noNodes()
	}
	o.question.Nodes, err = o.selection.Select(inv, o.question)
	if err != nil {
		return err
	}
	report := check.Ask(inv, o.question)
	view := check.View{Format: o.output, ShowAll: o.showAll || len(o.verdicts) > 0, GroupBy: o.groupBy}
	view.Color, view.Width = terminal(stdout)
	view.Empty = "no node matches " + o.selector
	if o.disrupted {
		view.Empty = "no node is marked for disruption"
	}
	if err := report.Write(stdout, view); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	if report.Hurts() {
		return errHurts
	}
	return nil
}

func (o *checkOptions) read(ctx context.Context, stdin io.Reader) (*inventory.Inventory, error) {
	if len(o.files) > 0 {
		return inventory.Load(o.files, stdin)
	}
	return readCluster(ctx, o.connection, o.want)
}

// notify says on stderr what the answer lacks.
func (o *checkOptions) notify(inv *inventory.Inventory, stderr io.Writer) {
	for _, notice := range inv.Notices() {
		fmt.Fprintf(stderr, "note: %s\n", notice)
	}
	if len(o.files) == 0 {
		return
	}
	stray := inv.StrayNodes()
	names := slices.Sorted(maps.Keys(stray))
	pods := 0
	for _, n := range stray {
		pods += n
	}
	shown := strings.Join(names[:min(3, len(names))], ", ")
	switch {
	case pods == 1:
		fmt.Fprintf(stderr, "note: 1 pod is left out: its node is not in the input (%s)\n", shown)
	case pods > 1:
		fmt.Fprintf(stderr, "note: %d pods are left out: their nodes are not in the input (%s)\n", pods, shown)
	}
}

func (o *checkOptions) noNodes() error {
	if len(o.files) == 0 {
		return &inventory.InputError{Where: "the cluster", Problem: "it has no nodes"}
	}
	return &inventory.InputError{
		Where: strings.Join(o.files, ", "), Problem: "there is no Node in the input",
		Advice: "add the nodes: kubectl get nodes -o json > nodes.json, then -f nodes.json",
	}
}

// terminal tells whether w is one that takes colours, and how wide it is.
func terminal(w io.Writer) (color bool, width int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", width
}
