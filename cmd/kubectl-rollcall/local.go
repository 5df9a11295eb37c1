package main

import (
	"context"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// localWorkers is enough for one that writes nothing.
const localWorkers = 2

// startLocal starts the controller in this process, as a dry run: it reads what the one in a cluster reads, decides the
// same and writes nothing, not even a Lease. It ends with ctx; running waits for that.
func (o *uiOptions) startLocal(ctx context.Context, running *sync.WaitGroup) (stream.Dialer, error) {
	config, err := restConfig(o.connection)
	if err != nil {
		return nil, err
	}
	clients, err := informers.NewClients(config)
	if err != nil {
		return nil, err
	}
	set, err := informers.New(clients, informers.Options{})
	if err != nil {
		return nil, err
	}
	claims, err := karpenter.NewClaims(clients, set, 0)
	if err != nil {
		return nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		name = "this machine"
	}
	hub := stream.NewHub(stream.Server{
		Boot: string(uuid.NewUUID()), Identity: name, Program: version, Started: time.Now(), DryRun: true,
	}, time.Now)
	keys := queue.New(queue.Options{})
	hub.Poll(keys.Source())
	if err := o.reconcilers(clients, set, claims, keys, hub, name); err != nil {
		return nil, err
	}
	synced := make(chan struct{})
	running.Go(func() { set.Run(ctx) })
	running.Go(func() { claims.Run(ctx) })
	running.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), set.Synced, claims.Settled) {
			return
		}
		close(synced)
		_ = keys.Run(ctx, ctx.Done(), localWorkers) // it fails where handlers cannot be added to caches that ended, and then ctx has
	})
	return &localDialer{stream.InProcess{Hub: hub, Peer: "this process"}, synced, config.Host}, nil
}

// reconcilers has both reconcilers work on the queue and show what they see.
func (o *uiOptions) reconcilers(clients informers.Clients, set *informers.Set, claims *karpenter.Claims, keys *queue.Queue, hub *stream.Hub, identity string) error {
	nodes, err := karpenter.New(clients, set, karpenter.Options{
		Disruption: o.disruption, Mark: map[fate.Verdict]bool{fate.Lost: true}, Queue: keys, DryRun: true, Identity: identity, Claims: claims, Hub: hub,
	})
	if err != nil {
		return err
	}
	arrivals := stream.NewArrivals(hub, time.Now)
	if _, err := gate.New(clients.Typed, set, gate.Options{
		Taint: readiness.DefaultTaint, Condition: readiness.DefaultCondition, Settle: time.Second, Queue: keys, DryRun: true, Identity: identity,
		Observer: gate.Show(hub, arrivals),
	}); err != nil {
		return err
	}
	return nodes.ShowClaims(claims, arrivals)
}

// A localDialer dials the controller in this process once it knows the cluster.
type localDialer struct {
	stream.InProcess
	synced <-chan struct{}
	host   string
}

// Dial implements stream.Dialer.
func (d *localDialer) Dial(ctx context.Context) (*stream.Connection, error) {
	select {
	case <-d.synced:
		return d.InProcess.Dial(ctx)
	default:
		return nil, &stream.ConnectError{Problem: "reading the nodes, pods and owners of the cluster at " + d.host + "; what is refused is in --log-file"}
	}
}
