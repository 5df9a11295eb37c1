package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // REST client metrics
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// lifelineFD is the file descriptor on which a component holds the reading end of its supervisor's pipe.
const lifelineFD = 3

// runComponent turns this process into one component and returns its exit status.
func runComponent(name string, args []string) int {
	go dieWithSupervisor()
	var cmd *cobra.Command
	switch name {
	case "etcd":
		cmd = newEtcdCommand()
	case "kube-apiserver":
		cmd = apiserver.NewAPIServerCommand()
	case "kube-scheduler":
		cmd = scheduler.NewSchedulerCommand()
	case "kube-controller-manager":
		cmd = controllermanager.NewControllerManagerCommand()
	case "kubelet":
		cmd = newKubeletCommand()
	default:
		fmt.Fprintf(os.Stderr, "error: no component %q\n", name)
		return 2
	}
	cmd.SetArgs(args)
	return cli.Run(cmd)
}

// dieWithSupervisor ends the process when the other end of the lifeline is closed. The state of a component is worth
// nothing without its supervisor, so nothing is shut down in order.
func dieWithSupervisor() {
	lifeline := os.NewFile(lifelineFD, "lifeline")
	if lifeline == nil {
		return
	}
	_, _ = io.Copy(io.Discard, lifeline)
	os.Exit(0)
}

// newEtcdCommand is a single etcd member that never waits for the disk: its data lives as long as the cluster.
func newEtcdCommand() *cobra.Command {
	var dataDir, clientURL, peerURL, ca, cert, key string
	cmd := &cobra.Command{
		Use: "etcd",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := embed.NewConfig()
			cfg.Dir = dataDir
			cfg.Name = "default"
			cfg.LogLevel = "warn"
			cfg.UnsafeNoFsync = true
			client, err := url.Parse(clientURL)
			if err != nil {
				return fmt.Errorf("reading --client-url: %w", err)
			}
			peer, err := url.Parse(peerURL)
			if err != nil {
				return fmt.Errorf("reading --peer-url: %w", err)
			}
			cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
			cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
			cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
			tls := transport.TLSInfo{CertFile: cert, KeyFile: key, TrustedCAFile: ca, ClientCertAuth: true}
			cfg.ClientTLSInfo, cfg.PeerTLSInfo = tls, tls
			return runEtcd(cmd.Context(), cfg)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&dataDir, "data-dir", "", "directory of the data")
	fs.StringVar(&clientURL, "client-url", "", "URL that clients use")
	fs.StringVar(&peerURL, "peer-url", "", "URL that peers use")
	fs.StringVar(&ca, "ca", "", "file of the CA's certificate")
	fs.StringVar(&cert, "cert", "", "file of the serving certificate")
	fs.StringVar(&key, "key", "", "file of its key")
	return cmd
}

func runEtcd(ctx context.Context, cfg *embed.Config) error {
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return fmt.Errorf("etcd is not ready after a minute")
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return err
	}
}
