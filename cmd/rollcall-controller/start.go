package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/health"
	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/leader"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/losses"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// start wires everything and works until the context ends.
func start(ctx context.Context, o *options, stderr io.Writer) error {
	// A user's mistake is found before anything of the process is changed.
	config, err := restConfig(o)
	if err != nil {
		return err
	}
	logTo(stderr, o.logFormat, o.verbosity)
	metrics.WatchRequests()
	clients, err := informers.NewClients(config)
	if err != nil {
		return err
	}
	set, err := informers.New(clients, informers.Options{Placement: o.mark[fate.Stranded], OwnerKinds: o.ownerKinds})
	if err != nil {
		return err
	}
	claims, err := karpenter.NewClaims(clients, set, 0)
	if err != nil {
		return err
	}
	elector := leader.New(clients.Typed, o.leader)
	measures := karpenter.NewMetrics(version, o.disruption)
	keys := queue.New(queue.Options{Metrics: measures.Queues()})
	hub := newHub(o)
	arrivals := stream.NewArrivals(hub, time.Now)
	hub.Poll(keys.Source())
	nodes, err := karpenter.New(clients, set, karpenter.Options{
		Disruption: o.disruption, Mark: o.mark, Queue: keys, DryRun: o.dryRun, Identity: o.leader.Identity,
		Losses: lossOptions(o, clients, elector), Metrics: measures, Claims: claims, Hub: hub,
	})
	if err != nil {
		return err
	}
	if err := newGate(o, clients, set, keys, measures, gate.Show(hub, arrivals)); err != nil {
		return err
	}
	if err := nodes.ShowClaims(claims, arrivals); err != nil {
		return err
	}

	// The caches and the probes outlive ctx: they serve until the work has stopped.
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	if err := serveHealth(background, o.health, set, elector, measures); err != nil {
		return err
	}
	serveStream(background, o, hub, elector)
	if err := reach(ctx, clients.Typed, config.Host); err != nil {
		return nil // told to stop before there was anything to do
	}
	running.Go(func() { set.Run(background) })
	running.Go(func() { claims.Run(background) })
	if !cache.WaitForCacheSync(ctx.Done(), set.Synced, claims.Settled) {
		return nil
	}
	slog.Info("caches are synced")
	return elector.Run(ctx, func(lead context.Context, stop <-chan struct{}) error {
		// Who leads no more shows nothing more: a reader looks for the next one.
		defer context.AfterFunc(lead, hub.Close)()
		defer hub.Close()
		return keys.Run(lead, stop, o.workers)
	})
}

// logTo makes slog the log of the process, the Kubernetes client's included.
func logTo(w io.Writer, format string, verbosity int) {
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-verbosity)}
	var handler slog.Handler = slog.NewTextHandler(w, handlerOptions)
	if format == "json" {
		handler = slog.NewJSONHandler(w, handlerOptions)
	}
	slog.SetDefault(slog.New(handler))
	klog.SetSlogLogger(slog.Default())
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(verbosity)) // a number is always right
}

func restConfig(o *options) (*rest.Config, error) {
	config, err := o.clientConfig().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no cluster is configured: there is no kubeconfig, and this is no pod (give one with --kubeconfig, or --server)")
	case err != nil:
		return nil, fmt.Errorf("reading the cluster's address and credentials: %w (give a readable file with --kubeconfig)", err)
	}
	config.UserAgent = "rollcall-controller/" + version
	config.QPS, config.Burst = -1, 0
	if o.qps > 0 {
		config.QPS, config.Burst = o.qps, o.burst
		if o.burst == 0 {
			config.Burst = max(1, int(2*o.qps))
		}
	}
	return config, nil
}

// lossOptions has the Lease, where there is one, remember since when losses are recorded.
func lossOptions(o *options, clients informers.Clients, elector *leader.Elector) karpenter.LossOptions {
	lossOptions := karpenter.LossOptions{Retention: o.retention, PerNamespace: o.records}
	if o.leader.Elect {
		lossOptions.Lease = losses.Lease{
			Client: clients.Typed, Namespace: o.leader.Namespace, Name: o.leader.Name,
			Identity: o.leader.Identity, Previous: elector.Previous,
		}
	}
	return lossOptions
}

// serveHealth answers the probes and serves the metrics.
func serveHealth(ctx context.Context, address string, set *informers.Set, elector *leader.Elector, measures *metrics.Metrics) error {
	if address == "" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", measures.Handler())
	mux.Handle("/", health.Handler(health.Checks{
		Live: elector.Healthy,
		Ready: func(*http.Request) error {
			if !set.Synced() {
				return errors.New("the caches are not filled yet")
			}
			return nil
		},
	}))
	served, err := health.Serve(ctx, "health", address, mux)
	if err != nil {
		return fmt.Errorf("%w (choose another --health-address)", err)
	}
	slog.Info("serving health", "address", served.String())
	return nil
}

const (
	firstPause = time.Second
	// lastPause is as long as the start may lag behind an API server that is back.
	lastPause    = 15 * time.Second
	reachTimeout = 10 * time.Second
)

// reach waits until the API server answers, whatever it says, and tells of each try that fails. It returns an error only
// when the context ends.
func reach(ctx context.Context, client kubernetes.Interface, host string) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := client.CoreV1().RESTClient().Get().AbsPath("/version").Timeout(reachTimeout).Do(ctx).Error()
		if err == nil || answered(err) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		slog.Warn("cannot reach the API server, trying again", "server", host, "in", pause.String(), "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// answered tells whether the error is the API server's own word, and not that it could not be reached or is not ready.
func answered(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}
