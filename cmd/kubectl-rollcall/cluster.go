package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rollcall-dev/rollcall/karpenter/inventory"
)

// A clusterError is a cluster that cannot be asked.
type clusterError struct {
	problem string
	advice  string
	err     error
}

func (e *clusterError) Error() string { return e.problem }

// Hint returns the way out.
func (e *clusterError) Hint() string { return e.advice }

func (e *clusterError) Unwrap() error { return e.err }

const offline = "or work without a cluster: check and mirrors take -f FILE"

// readCluster reads what the question needs from the cluster of the kubeconfig.
func readCluster(ctx context.Context, connection *genericclioptions.ConfigFlags, want inventory.Want) (*inventory.Inventory, error) {
	config, err := restConfig(connection)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	inv, err := inventory.FromCluster(ctx, inventory.Clients{Typed: typed, Dynamic: dynamicClient}, want)
	if err != nil && *connection.APIServer == "" && unconfigured(connection) {
		return nil, &clusterError{"no cluster is configured, and none answers at " + config.Host, "pass --kubeconfig, or set KUBECONFIG; " + offline, err}
	}
	return inv, explain(err, config.Host)
}

// unconfigured tells whether there is no kubeconfig, so that the address is kubectl's guess.
func unconfigured(connection *genericclioptions.ConfigFlags) bool {
	raw, err := connection.ToRawKubeConfigLoader().RawConfig()
	return err == nil && len(raw.Clusters) == 0
}

// restConfig finds the cluster as kubectl does.
func restConfig(connection *genericclioptions.ConfigFlags) (*rest.Config, error) {
	config, err := connection.ToRESTConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, &clusterError{"no cluster is configured", "pass --kubeconfig, or set KUBECONFIG; " + offline, err}
	}
	if err != nil {
		return nil, &clusterError{fmt.Sprintf("the kubeconfig cannot be used: %v", err), "check --kubeconfig, KUBECONFIG and --context; " + offline, err}
	}
	config.QPS = -1 // the API server's own fairness decides
	config.UserAgent = "kubectl-rollcall/" + version
	return config, nil
}

// explain makes of a failed request what a person can act on.
func explain(err error, host string) error {
	var failed *url.Error
	switch {
	case errors.As(err, &failed):
		return &clusterError{
			fmt.Sprintf("no cluster answers at %s: %v", host, failed.Err),
			"check --kubeconfig, KUBECONFIG and --context; " + offline, err,
		}
	case apierrors.IsUnauthorized(err):
		return &clusterError{fmt.Sprintf("the cluster at %s does not accept your credentials", host), "log in again, or check --context and --user", err}
	}
	return err
}

// completionTimeout bounds what the shell waits for.
const completionTimeout = 3 * time.Second

// completeNodes offers the names of the cluster's nodes.
func (o *checkOptions) completeNodes(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	config, err := restConfig(o.connection)
	if err != nil || len(o.files) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	nodes, err := typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(nodes.Items))
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
