package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rollcall-dev/rollcall/internal/leader"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// options is the command line.
type options struct {
	kubeconfig string
	connection clientcmd.ConfigOverrides
	disruption *karpenter.Config
	leader     leader.Config
	workers    int
	dryRun     bool
	health     string
	logFormat  string
	verbosity  int
	qps        float32
	burst      int
	marks      []string
	kinds      []string
	retention  time.Duration
	records    int
	stream     streamOptions
	gate       gateOptions

	// What complete makes of the above.
	mark       map[fate.Verdict]bool
	ownerKinds []schema.GroupKind
}

func newOptions() *options {
	return &options{disruption: karpenter.DefaultConfig()}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.disruption.AddFlags(fs)
	o.leader.AddFlags(fs)
	fs.StringSliceVar(&o.marks, "mark", []string{string(fate.Lost)}, "verdicts that are marked, of Lost, Stranded and Unsure; Stranded adds the placement of pods")
	fs.StringSliceVar(&o.kinds, "owner-kinds", nil, "kinds of pod owners beyond the built-in ones, as group/Kind, for example argoproj.io/Workflow; the role must allow to get, list and watch them")
	o.gate.addFlags(fs)
	o.stream.addFlags(fs)
	fs.IntVar(&o.workers, "workers", 4, "nodes that are worked on at a time")
	fs.DurationVar(&o.retention, "loss-retention", 7*24*time.Hour, "how long a PodLoss is kept after it was closed or withdrawn")
	fs.IntVar(&o.records, "losses-per-namespace", 1000, "how many PodLosses a namespace may have, the oldest go first; 0 records none")
	fs.BoolVar(&o.dryRun, "dry-run", false, "log what would be written and write nothing, not even a Lease")
	fs.StringVar(&o.health, "health-address", ":8081", "address of /healthz, /readyz and /metrics; empty for none")
	fs.StringVar(&o.logFormat, "log-format", "text", "text or json")
	fs.IntVarP(&o.verbosity, "verbosity", "v", 0, "log more: 4 for debugging, higher for the Kubernetes client's own")
	fs.Float32Var(&o.qps, "kube-api-qps", 0, "client-side limit of requests a second; 0 for none: the API server's own fairness decides")
	fs.IntVar(&o.burst, "kube-api-burst", 0, "requests above --kube-api-qps for a moment; 0 for twice that")
	o.addConnectionFlags(fs)
}

// addConnectionFlags registers kubectl's flags, without the namespace: rollcall watches all of them.
func (o *options) addConnectionFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "path to the kubeconfig file; in a pod none is needed")
	flags := clientcmd.RecommendedConfigOverrideFlags("")
	flags.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	flags.AuthOverrideFlags.Username, flags.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	flags.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&o.connection, fs, flags)
}

// clientConfig finds the cluster as kubectl does: the file of --kubeconfig, else those of $KUBECONFIG, else the one in the
// home directory, else the pod's service account.
func (o *options) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &o.connection)
}

// complete checks the flags and reads those that are lists of names.
func (o *options) complete() error {
	if err := o.disruption.Validate(); err != nil {
		return err
	}
	if err := o.gate.complete(); err != nil {
		return err
	}
	if err := o.stream.complete(); err != nil {
		return err
	}
	switch {
	case o.workers < 1:
		return fmt.Errorf("--workers is %d: at least one must do the work", o.workers)
	case o.logFormat != "text" && o.logFormat != "json":
		return fmt.Errorf("--log-format is %q: it must be text or json", o.logFormat)
	case o.records < 0 || o.retention <= 0:
		return fmt.Errorf("--losses-per-namespace must not be negative, and --loss-retention must be longer than nothing; to record no losses pass --losses-per-namespace=0")
	case o.qps < 0 || o.burst < 0:
		return fmt.Errorf("--kube-api-qps and --kube-api-burst must not be negative; 0 means no limit")
	case o.leader.Duration <= o.leader.RenewDeadline || o.leader.RenewDeadline <= o.leader.RetryPeriod*12/10 || o.leader.RetryPeriod <= 0:
		return fmt.Errorf("the times of the Lease do not fit: --leader-elect-lease-duration (%v) must be longer than --leader-elect-renew-deadline (%v), and that longer than 1.2 times --leader-elect-retry-period (%v)",
			o.leader.Duration, o.leader.RenewDeadline, o.leader.RetryPeriod)
	}
	o.mark = map[fate.Verdict]bool{}
	for _, name := range o.marks {
		switch verdict := fate.Verdict(name); verdict {
		case fate.Lost, fate.Stranded, fate.Unsure:
			o.mark[verdict] = true
		default:
			return fmt.Errorf("--mark does not know the verdict %q: it takes Lost, Stranded and Unsure", name)
		}
	}
	for _, text := range o.kinds {
		group, kind, ok := strings.Cut(text, "/")
		if !ok || !strings.Contains(group, ".") || kind == "" || strings.Contains(kind, "/") {
			return fmt.Errorf("malformed --owner-kinds %q: the form is group/Kind, for example argoproj.io/Workflow; built-in kinds are watched anyway", text)
		}
		o.ownerKinds = append(o.ownerKinds, schema.GroupKind{Group: group, Kind: kind})
	}
	o.leader.Elect = o.leader.Elect && !o.dryRun
	o.leader.Identity = identity()
	return nil
}

// identity begins with the pod's name, by which clients of the stream find it: that of the environment where the manifest
// gives one, else the host's name, which is the pod's unless the pod says otherwise.
func identity() string {
	host := os.Getenv("POD_NAME")
	if host == "" {
		var err error
		if host, err = os.Hostname(); err != nil {
			host = "unknown"
		}
	}
	return host + "_" + string(uuid.NewUUID())
}
