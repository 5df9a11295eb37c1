package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/kubelet"
)

// options is the command line.
type options struct {
	node        string
	identity    string
	kubeconfig  string
	apiServer   string
	socket      string
	manifests   string
	optional    bool
	podsURL     string
	podsCA      string
	podsToken   string
	bootIDFile  string
	standalone  bool
	taintText   string
	taint       readiness.Taint // what complete makes of taintText
	condition   string
	settle      time.Duration
	heldWarning time.Duration
	version     bool
}

// Files of a pod's service account.
const (
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"
	tokenFile      = serviceAccount + "token"
)

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "the kubelet's node `name`; the environment's NODE_NAME where not given")
	fs.StringVar(&o.identity, "identity", defaultIdentity(), "the `name` of this agent among others; the environment's POD_NAME or the host's name where not given")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`path` to a kubeconfig; in a pod none is needed")
	fs.StringVar(&o.apiServer, "api-server", "", "`URL` of the API server, instead of the cluster's service, which needs kube-proxy")
	fs.StringVar(&o.socket, "pods-api-socket", "/var/lib/kubelet/pods-api/pods-api.sock", "`path` of the kubelet's PodsAPI socket; empty for none")
	fs.StringVar(&o.manifests, "manifests", "/etc/kubernetes/manifests", "the kubelet's manifest `path`, a directory or a file; empty for none")
	fs.BoolVar(&o.optional, "manifests-optional", false, "an absent manifest path means no static pods; otherwise it is no answer")
	fs.StringVar(&o.podsURL, "kubelet-pods-url", "", "`URL` of the kubelet's /pods, https; needs the right to get nodes/pods, and with it every node's pods can be read; off where empty")
	fs.StringVar(&o.podsCA, "kubelet-ca-file", serviceAccount+"ca.crt", "`path` of the CA of the kubelet's certificate")
	fs.StringVar(&o.podsToken, "kubelet-token-file", tokenFile, "`path` of the token for the kubelet")
	fs.StringVar(&o.bootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "`path` of the machine's boot id")
	fs.BoolVar(&o.standalone, "standalone", false, "write the condition as well, for clusters without the rollcall-controller; needs to list and watch pods")
	fs.StringVar(&o.taintText, "readiness-taint", readiness.DefaultTaint.String(), "the taint that should hold the node, as `key[:effect]`; with --standalone an Event says where it is missing")
	fs.StringVar(&o.condition, "condition", readiness.DefaultCondition, "`type` of the condition")
	fs.DurationVar(&o.settle, "settle", time.Second, "how long all mirrors must have stood before the condition is True")
	fs.DurationVar(&o.heldWarning, "held-warning", 5*time.Minute, "after how long without True an Event says so; 0 for never")
	fs.BoolVar(&o.version, "version", false, "print the version")
}

// defaultIdentity is the pod's name, or the host's.
func defaultIdentity() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// complete checks the command line as a whole.
func (o *options) complete(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q: everything is a flag", args[0])
	case o.node == "":
		return errors.New("which node? Give --node-name, or set NODE_NAME from the pod's spec.nodeName")
	case len(validation.IsDNS1123Subdomain(o.node)) > 0:
		return fmt.Errorf("--node-name %q is no name of a Node; Node names are lower-case", o.node)
	case o.socket == "" && o.manifests == "" && o.podsURL == "":
		return errors.New("no source is left: give --pods-api-socket, --manifests or --kubelet-pods-url")
	case len(validation.IsQualifiedName(o.condition)) > 0:
		return fmt.Errorf("--condition %q is no type of a condition, such as %s", o.condition, readiness.DefaultCondition)
	case o.settle < 0 || o.heldWarning < 0:
		return errors.New("--settle and --held-warning cannot be negative")
	}
	if o.apiServer != "" {
		if u, err := url.Parse(o.apiServer); err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("--api-server %q is no https URL, such as https://10.0.0.10:6443", o.apiServer)
		}
	}
	var err error
	if o.taint, err = readiness.ParseTaint(o.taintText); err != nil {
		return fmt.Errorf("--readiness-taint: %w", err)
	}
	if o.podsURL != "" {
		return o.pods().Check()
	}
	return nil
}

func (o *options) pods() *kubelet.Pods {
	return &kubelet.Pods{URL: o.podsURL, CAFile: o.podsCA, TokenFile: o.podsToken}
}

// sources are the ways to learn the set, the preferred one first.
func (o *options) sources() []kubelet.Source {
	var sources []kubelet.Source
	if o.socket != "" {
		sources = append(sources, &kubelet.PodsAPI{Socket: o.socket})
	}
	if o.podsURL != "" {
		sources = append(sources, o.pods())
	}
	if o.manifests != "" {
		sources = append(sources, &kubelet.Manifests{Path: o.manifests, Node: o.node, Optional: o.optional})
	}
	return sources
}

func (o *options) bootID() (string, error) {
	data, err := os.ReadFile(o.bootIDFile)
	if err != nil {
		return "", fmt.Errorf("reading the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// restConfig finds the API server: the kubeconfig's, or the cluster's own, at --api-server if given.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := o.connection()
	if err != nil {
		return nil, err
	}
	if o.apiServer != "" {
		config.Host = o.apiServer
	}
	config.UserAgent = "rollcall-agent/" + version
	return config, nil
}

func (o *options) connection() (*rest.Config, error) {
	if o.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig: %w", err)
		}
		return config, nil
	}
	if o.apiServer != "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		// Only the address comes from there, and it is given.
		return &rest.Config{
			Host: o.apiServer, BearerTokenFile: tokenFile,
			TLSClientConfig: rest.TLSClientConfig{CAFile: serviceAccount + "ca.crt"},
		}, nil
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("no API server: this is no pod; give --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pod's service account: %w", err)
	}
	return config, nil
}
