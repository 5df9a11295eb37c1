// Command cluster is a real Kubernetes control plane in one binary: etcd, kube-apiserver, kube-scheduler,
// kube-controller-manager and kubelets on a fake container runtime, built from Go modules and run on 127.0.0.1.
//
// One process, the supervisor, owns a cluster: it starts every component as a child of its own, answers on a unix socket
// in the cluster's directory, and stops exactly what it started. Each child holds the reading end of a pipe whose other
// end only the supervisor has: when the supervisor goes, however it goes, its children see the end of the pipe and go too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "component" {
		os.Exit(runComponent(os.Args[2], os.Args[3:]))
	}
	root := newRootCommand()
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes control plane and kubelets on 127.0.0.1, for demos and tests",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see '%s --help'", errUsage, err, cmd.CommandPath())
	})
	node := &cobra.Command{Use: "node", Short: "Add, kill and list the nodes of a running cluster"}
	node.AddCommand(newNodeAddCommand(), newNodeKillCommand(), newNodeListCommand())
	root.AddCommand(newUpCommand(), newDownCommand(), newSupervisorCommand(), node)
	return root
}
