package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/karpenter/inventory"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/manifest"
)

const mirrorsLong = `Whether every static pod of a node has a mirror pod that the scheduler counts, and which it still waits for.

The node's static pods are, first that is given: --kubelet-pods, what the node's kubelet answers under /pods; --manifests,
its manifest directory, read as a kubelet of 1.37 reads it; what rollcall-agent has published on the Node. Files of the
directory that make no pod are listed with the reason in each case.

With -f nothing is asked of a cluster: the Node and the pods are taken from the files.

Exit status: 0 the condition would be True, 3 it would not, 1 an error, 2 wrong usage.`

const mirrorsExamples = `  # A node of the cluster, by what its rollcall-agent has published
  kubectl rollcall mirrors ip-10-0-3-17

  # By what is on the node itself
  kubectl rollcall mirrors ip-10-0-3-17 --manifests /etc/kubernetes/manifests

  # Without a cluster
  kubectl get nodes,pods -A -o json > cluster.json
  kubectl rollcall mirrors -f cluster.json --node n1 --manifests ./manifests -o json`

// mirrorsOptions is the command line of mirrors.
type mirrorsOptions struct {
	connection  *genericclioptions.ConfigFlags
	files       []string
	node        string
	manifests   string
	kubeletPods string
	output      string
}

func newMirrors(connection *genericclioptions.ConfigFlags) *cobra.Command {
	o := &mirrorsOptions{connection: connection}
	command := &cobra.Command{
		Use:     "mirrors NODE | -f FILE... --node NAME [--manifests DIR] [--kubelet-pods FILE]",
		Short:   "Whether the static pods of a node are mirrored",
		Long:    mirrorsLong,
		Example: mirrorsExamples,
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(command.Context(), command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	fs := command.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(&o.files, "filename", "f", nil, "a `file` of Kubernetes objects, YAML or JSON, - for standard input; repeatable; no cluster is asked")
	fs.StringVar(&o.node, "node", "", "the `name` of the node; not needed where the files have one node only")
	fs.StringVar(&o.manifests, "manifests", "", "the node's manifest `directory`, or single manifest")
	fs.StringVar(&o.kubeletPods, "kubelet-pods", "", "a `file` with the answer of the kubelet's /pods")
	fs.StringVarP(&o.output, "output", "o", "table", "how the answer is shown: "+strings.Join(readiness.Formats, ", "))
	complete(command, "output", readiness.Formats...)
	return command
}

const mirrorsHelp = "kubectl rollcall mirrors --help has examples"

func (o *mirrorsOptions) complete(args []string) error {
	switch {
	case !slices.Contains(readiness.Formats, o.output):
		return &usageError{fmt.Sprintf("there is no output format %q", o.output), "-o takes " + strings.Join(readiness.Formats, ", ")}
	case len(args) > 1:
		return &usageError{"mirrors is about one node", "name one; " + mirrorsHelp}
	case len(args) == 1 && o.node != "" && o.node != args[0]:
		return &usageError{fmt.Sprintf("two nodes are named, %s and %s", args[0], o.node), "name one"}
	case len(args) == 1:
		o.node = args[0]
	}
	if o.node == "" && len(o.files) == 0 {
		return &usageError{"which node?", "name it: kubectl rollcall mirrors NODE; " + mirrorsHelp}
	}
	return nil
}

func (o *mirrorsOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	node, lookup, err := o.read(ctx, stdin)
	if err != nil {
		return err
	}
	expected, err := o.expected(node, stderr)
	if err != nil {
		return err
	}
	pods, err := lookup(expected.Pods)
	if err != nil {
		return err
	}
	result := readiness.Evaluate(node, expected, pods)
	if err := readiness.NewReport(node.Name, expected, result).Write(stdout, o.output); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	if result.Status != corev1.ConditionTrue {
		return errHurts
	}
	return nil
}

// expected finds the node's static pods: the kubelet's answer decides over the directory, whose ignored files are still
// reported.
func (o *mirrorsOptions) expected(node *corev1.Node, stderr io.Writer) (readiness.Expected, error) {
	var expected readiness.Expected
	if o.kubeletPods != "" {
		data, err := os.ReadFile(o.kubeletPods)
		if err == nil {
			expected, err = readiness.DecodeKubeletPods(data)
		}
		if err != nil {
			return expected, &inventory.InputError{
				Where: "--kubelet-pods", Problem: err.Error(), Err: err,
				Advice: "give a file with what the node's kubelet answers to GET https://NODE:10250/pods",
			}
		}
	}
	if o.manifests == "" {
		if o.kubeletPods == "" {
			expected = readiness.Published(node)
		}
		return expected, nil
	}
	listing, err := manifest.Read(o.manifests, node.Name)
	switch {
	case o.kubeletPods == "" && err != nil:
		expected.Unknown = err.Error()
	case o.kubeletPods == "":
		expected = readiness.Expected{Source: manifest.Source, Pods: listing.Pods, Ignored: listing.Ignored}
	case err != nil:
		fmt.Fprintf(stderr, "note: ignored files are not listed: %v\n", err)
	default:
		expected.Ignored = listing.Ignored
	}
	return expected, nil
}

// podLookup finds the pods of the API that bear the names of static pods.
type podLookup func([]readiness.StaticPod) ([]*corev1.Pod, error)

func (o *mirrorsOptions) read(ctx context.Context, stdin io.Reader) (*corev1.Node, podLookup, error) {
	if len(o.files) == 0 {
		return o.readCluster(ctx)
	}
	inv, err := inventory.Load(o.files, stdin)
	if err != nil {
		return nil, nil, err
	}
	node, err := o.nodeOf(inv)
	return node, func(static []readiness.StaticPod) ([]*corev1.Pod, error) {
		var pods []*corev1.Pod
		for _, want := range static {
			if pod := inv.Pod(want.Namespace, want.Name); pod != nil {
				pods = append(pods, pod)
			}
		}
		return pods, nil
	}, err
}

func (o *mirrorsOptions) nodeOf(inv *inventory.Inventory) (*corev1.Node, error) {
	nodes := inv.Nodes()
	if o.node == "" && len(nodes) == 1 {
		return nodes[0], nil
	}
	if o.node == "" {
		return nil, &usageError{fmt.Sprintf("which of the %d nodes in the input?", len(nodes)), "name it: --node NAME"}
	}
	node := inv.Node(o.node)
	if node == nil {
		return nil, &inventory.InputError{
			Where: strings.Join(o.files, ", "), Problem: fmt.Sprintf("there is no Node %s in the input", o.node),
			Advice: "add it: kubectl get node " + o.node + " -o json > node.json, then -f node.json",
		}
	}
	return node, nil
}

// readCluster reads the Node now and, when asked, the pods on it; a name that is not among them is looked up on its own,
// since a pod of that name may stand elsewhere.
func (o *mirrorsOptions) readCluster(ctx context.Context) (*corev1.Node, podLookup, error) {
	config, err := restConfig(o.connection)
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	node, err := client.CoreV1().Nodes().Get(ctx, o.node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, &clusterError{fmt.Sprintf("there is no node %s", o.node), "kubectl get nodes lists them", err}
	case err != nil:
		return nil, nil, fmt.Errorf("reading node %s: %w", o.node, explain(err, config.Host))
	}
	return node, func(static []readiness.StaticPod) ([]*corev1.Pod, error) {
		pods, err := podsOf(ctx, client, node.Name, static)
		return pods, explain(err, config.Host)
	}, nil
}

func podsOf(ctx context.Context, client kubernetes.Interface, node string, static []readiness.StaticPod) ([]*corev1.Pod, error) {
	if len(static) == 0 {
		return nil, nil
	}
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	var pods []*corev1.Pod
	there := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		pods = append(pods, pod)
		there[pod.Namespace+"/"+pod.Name] = true
	}
	var errs []error
	for _, want := range static {
		if there[want.Key()] {
			continue
		}
		pod, err := client.CoreV1().Pods(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			pods = append(pods, pod)
		case !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("reading pod %s: %w", want.Key(), err))
		}
	}
	return pods, errors.Join(errs...)
}
