package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	unread := &unread{host: config.Host, synced: map[string]cache.InformerSynced{}, last: map[string]error{}}
	config.Wrap(unread.listen)
	clients, err := informers.NewClients(config)
	if err != nil {
		return nil, err
	}
	set, err := informers.New(clients, informers.Options{})
	if err != nil {
		return nil, err
	}
	if err := unread.watch(set); err != nil {
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
	return &localDialer{stream.InProcess{Hub: hub, Peer: "this process"}, synced, unread}, nil
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
	unread *unread
}

// Dial implements stream.Dialer.
func (d *localDialer) Dial(ctx context.Context) (*stream.Connection, error) {
	select {
	case <-d.synced:
		return d.InProcess.Dial(ctx)
	default:
		return nil, d.unread.explain()
	}
}

// unread knows what keeps the caches from being filled: the last error of each kind, for people who see no log.
type unread struct {
	host   string
	synced map[string]cache.InformerSynced // by resource

	mu   sync.Mutex
	last map[string]error // guarded by mu; by resource
	down error            // guarded by mu; of the last request, where it had no answer
}

// listen hears of requests without an answer. The informers say nothing of refused connections, and try again (k8s.io/client-go
// tools/cache Reflector.watchList).
func (u *unread) listen(next http.RoundTripper) http.RoundTripper { return &listening{next, u} }

type listening struct {
	http.RoundTripper
	unread *unread
}

func (l *listening) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	if request.Context().Err() == nil {
		l.unread.mu.Lock()
		l.unread.down = err
		l.unread.mu.Unlock()
	}
	return response, err
}

// watch hears of the errors of the set's informers, which must not have been started, in place of their log.
func (u *unread) watch(set *informers.Set) error {
	core, apps := set.Core().V1(), set.Apps().V1()
	for resource, informer := range map[string]cache.SharedIndexInformer{
		"nodes": core.Nodes().Informer(), "pods": core.Pods().Informer(), "replicationcontrollers": core.ReplicationControllers().Informer(),
		"replicasets.apps": apps.ReplicaSets().Informer(), "statefulsets.apps": apps.StatefulSets().Informer(),
		"daemonsets.apps": apps.DaemonSets().Informer(), "jobs.batch": set.Batch().V1().Jobs().Informer(),
	} {
		u.synced[resource] = informer.HasSynced
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { u.failed(resource, err) })
		if err != nil {
			return fmt.Errorf("watching %s: %w", resource, err)
		}
	}
	return nil
}

// failed notes an error. That a watch is expired is its everyday business.
func (u *unread) failed(resource string, err error) {
	if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) {
		return
	}
	slog.Warn("a watch failed and is tried again", "resource", resource, "error", err)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last[resource] = err
}

// explain says why the cluster is not known yet. Where several kinds fail, a refusal is told before the rest: it does not
// pass by itself.
func (u *unread) explain() *stream.ConnectError {
	u.mu.Lock()
	defer u.mu.Unlock()
	var forbidden []string
	var told error
	for _, resource := range slices.Sorted(maps.Keys(u.last)) {
		err := u.last[resource]
		switch {
		case u.synced[resource](): // it went well in the end
			continue
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, resource)
		case told == nil || apierrors.IsUnauthorized(err):
			told = err
		}
	}
	switch {
	case u.down != nil:
		return unreadable(&url.Error{Op: "Get", URL: u.host, Err: u.down}, u.host)
	case len(forbidden) > 0:
		kinds := strings.Join(forbidden, ", ")
		return &stream.ConnectError{
			Problem: fmt.Sprintf("you may not list and watch %s in the cluster at %s", kinds, u.host),
			Advice:  "--local needs both in all namespaces; test with: kubectl auth can-i list " + forbidden[0] + " --all-namespaces",
			Err:     u.last[forbidden[0]], Lasting: true,
		}
	case told != nil:
		return unreadable(told, u.host)
	}
	return &stream.ConnectError{Problem: "reading the nodes, pods and owners of the cluster at " + u.host}
}

// unreadable makes of a failed request what a person can act on.
func unreadable(err error, host string) *stream.ConnectError {
	if _, said, failed := strings.Cut(err.Error(), "getting credentials: "); failed { // client-go's words; the error has no type
		return &stream.ConnectError{
			Problem: "the kubeconfig's credential plugin gave no credentials: " + said, Advice: "run it by hand, or log in again; --context and --user choose another",
			Err: err, Lasting: true,
		}
	}
	var known *clusterError
	if explained := explain(err, host); errors.As(explained, &known) {
		return &stream.ConnectError{Problem: known.problem, Advice: known.advice, Err: err}
	}
	return &stream.ConnectError{Problem: fmt.Sprintf("the cluster at %s cannot be read: %v", host, err), Advice: "more is in --log-file", Err: err}
}
