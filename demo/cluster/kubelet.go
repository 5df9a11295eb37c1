package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
	"k8s.io/kubernetes/pkg/util/taints"
)

// kubeletFlags is what one kubelet is told on its command line.
type kubeletFlags struct {
	kubeconfig, clientCA string
	name, root           string
	port, readOnlyPort   int
	cpu                  int
	memory               string
	pods                 int
	staticPods           string
	staticPodURL         string
	bootID, providerID   string
	labels               map[string]string
	taints               []string
	apiQPS, apiBurst     int
}

// newKubeletCommand is the real kubelet (sync loop, static pods, mirror client, admission) on a fake container runtime.
func newKubeletCommand() *cobra.Command {
	var f kubeletFlags
	cmd := &cobra.Command{
		Use:  "kubelet",
		RunE: func(cmd *cobra.Command, _ []string) error { return runKubelet(cmd.Context(), &f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the node's identity")
	fs.StringVar(&f.clientCA, "client-ca-file", "", "certificate authority of those who may ask its server, the API server first")
	fs.StringVar(&f.name, "name", "", "name of the node")
	fs.StringVar(&f.root, "root-dir", "", "root directory")
	fs.IntVar(&f.port, "port", 0, "port of its server on 127.0.0.1, which asks the API server who may what")
	fs.IntVar(&f.readOnlyPort, "read-only-port", 0, "port of its plain server on 127.0.0.1, which answers /pods")
	fs.IntVar(&f.cpu, "cpu", 2, "cores of the machine")
	fs.StringVar(&f.memory, "memory", "4Gi", "memory of the machine")
	fs.IntVar(&f.pods, "pods", 110, "most pods that it runs")
	fs.StringVar(&f.staticPods, "static-pods", "", "directory of the static pods")
	fs.StringVar(&f.staticPodURL, "static-pod-url", "", "URL of further static pods")
	fs.StringVar(&f.bootID, "boot-id", "", "boot id of the machine")
	fs.StringVar(&f.providerID, "provider-id", "", "provider id of the Node")
	fs.StringToStringVar(&f.labels, "label", nil, "labels of the Node")
	fs.StringArrayVar(&f.taints, "taint", nil, "taint with which the Node registers, key=value:effect")
	addThrottleFlags(fs, &f.apiQPS, &f.apiBurst)
	return cmd
}

// addThrottleFlags adds what bounds the kubelet's requests: its kubeAPIQPS and kubeAPIBurst.
func addThrottleFlags(fs *pflag.FlagSet, qps, burst *int) {
	fs.IntVar(qps, "kube-api-qps", -1, "requests a second that the kubelet sends to the API server, heartbeats not counted; -1 for no bound")
	fs.IntVar(burst, "kube-api-burst", 1, "requests that it may send at once")
}

func runKubelet(ctx context.Context, f *kubeletFlags) error {
	memory, err := resource.ParseQuantity(f.memory)
	if err != nil {
		return fmt.Errorf("reading --memory %q: %w", f.memory, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent, config.QPS = "kubelet", -1
	heartbeats, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	// Only this one is bounded, as in cmd/kubelet/app/server.go: a throttled kubelet still says that it lives.
	config.QPS, config.Burst = float32(f.apiQPS), f.apiBurst
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	flags, settings, err := f.configuration()
	if err != nil {
		return err
	}
	images := apitest.NewFakeImageService()
	machine := &machine{Fake: cadvisortest.Fake{NodeName: f.name}, cores: f.cpu, memory: uint64(memory.Value()), bootID: f.bootID}
	runtime := newFakeRuntime()
	if err := runtime.serveStreams(); err != nil {
		return err
	}
	hollow := kubemark.NewHollowKubelet(flags, settings, client, heartbeats, machine, images, runtime, cm.NewStubContainerManager())
	if err := guard(ctx, hollow, config, client); err != nil {
		return err
	}
	hollow.Run(ctx)
	return nil
}

// configuration is what kubemark's kubelets have, with what the command line says.
func (f *kubeletFlags) configuration() (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	registerWith, _, err := taints.ParseTaints(f.taints)
	if err != nil {
		return nil, nil, fmt.Errorf("reading --taint: %w", err)
	}
	flags, settings := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: f.name, KubeletPort: f.port, KubeletReadOnlyPort: f.readOnlyPort, MaxPods: f.pods, NodeLabels: f.labels, RegisterWithTaints: registerWith,
	})
	// The configuration comes with temporary directories of its own, which nobody would remove.
	if err := os.RemoveAll(flags.RootDirectory); err != nil {
		return nil, nil, err
	}
	flags.RootDirectory = f.root
	settings.PodLogsDir = filepath.Join(f.root, "pod-logs")
	settings.Address = "127.0.0.1"
	// As kubeadm has it: nobody unknown, and the API server is asked about everybody else.
	settings.Authentication.X509.ClientCAFile = f.clientCA
	settings.Authentication.Anonymous.Enabled, settings.Authentication.Webhook.Enabled = false, true
	settings.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	settings.StaticPodPath, settings.StaticPodURL = f.staticPods, f.staticPodURL
	settings.HTTPCheckFrequency.Duration = time.Second
	settings.RegistryPullQPS = 0 // no registry to spare: the runtime only pretends to pull
	if f.providerID != "" {
		settings.ProviderID = f.providerID
	}
	return flags, settings, nil
}

// guard has the kubelet's server show a certificate and ask who may use it, as cmd/kubelet/app/server.go does: otherwise it
// would answer everybody.
func guard(ctx context.Context, hollow *kubemark.HollowKubelet, config *rest.Config, client clientset.Interface) error {
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData) // serves as well as it identifies: see pki.issue
	if err != nil {
		return fmt.Errorf("reading the kubelet's certificate: %w", err)
	}
	hollow.KubeletDeps.TLSConfig = &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert,
	}
	node := types.NodeName(hollow.KubeletFlags.HostnameOverride)
	auth, reload, err := kubeletapp.BuildAuth(node, client, *hollow.KubeletConfiguration)
	if err != nil {
		return fmt.Errorf("preparing to ask the API server who may use this kubelet: %w", err)
	}
	reload(ctx.Done())
	hollow.KubeletDeps.Auth = auth
	return nil
}

// machine is the hardware that the kubelet believes to run on.
type machine struct {
	cadvisortest.Fake
	cores  int
	memory uint64
	bootID string
}

// MachineInfo implements cadvisor.Interface.
func (m *machine) MachineInfo(klog.Logger) (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{
		NumCores:       m.cores,
		MemoryCapacity: m.memory,
		InstanceID:     cadvisorapi.InstanceID(m.NodeName),
		BootID:         m.bootID,
		SystemUUID:     m.NodeName,
		MachineID:      m.NodeName,
	}, nil
}

// nodeReady says whether pods can be bound to the Node: it is Ready, and the taint of its birth is gone.
func nodeReady(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
