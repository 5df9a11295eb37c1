// Package leader owns the Lease by which one of several replicas is the one that writes. What that one does is not its
// business.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/rollcall-dev/rollcall/internal/refusals"
)

// ErrLost says that the Lease went to nobody or to another while the work went on.
var ErrLost = errors.New("the Lease was lost")

// healthTolerance is how far beyond its expiry a Lease may be held before the process counts as hung.
const healthTolerance = 20 * time.Second

// Config names the Lease and its times.
type Config struct {
	// Elect is false where this is the only process.
	Elect           bool
	Namespace, Name string
	// Identity is what the Lease says of its holder.
	Identity string
	// Duration is how long others wait after the last renewal; RenewDeadline how long the holder tries to renew before it
	// gives up; RetryPeriod the pause between tries. Duration > RenewDeadline > RetryPeriod.
	Duration, RenewDeadline, RetryPeriod time.Duration
}

// AddFlags registers --leader-elect and what belongs to it, with the defaults that Kubernetes' own controllers have.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Elect, "leader-elect", true, "write only while holding the Lease, so that several replicas may run")
	fs.StringVar(&c.Namespace, "leader-elect-namespace", "rollcall-system", "namespace of the Lease")
	fs.StringVar(&c.Name, "leader-elect-name", "rollcall-controller", "name of the Lease")
	fs.DurationVar(&c.Duration, "leader-elect-lease-duration", 15*time.Second, "how long others wait after the last renewal before they take the Lease")
	fs.DurationVar(&c.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "how long the holder tries to renew before it gives up")
	fs.DurationVar(&c.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "pause between tries")
}

// Elector runs one process's part of the election.
type Elector struct {
	config   Config
	client   kubernetes.Interface
	health   *leaderelection.HealthzAdaptor
	refusals *refusals.Log

	mu       sync.Mutex
	previous time.Time // guarded by mu, as holder
	holder   string
}

// New makes an Elector. The client should have the process's user agent: its writes are the only ones of a quiet cluster.
func New(client kubernetes.Interface, config Config) *Elector {
	return &Elector{
		config: config, client: client, health: leaderelection.NewLeaderHealthzAdaptor(healthTolerance), refusals: refusals.New(time.Now),
	}
}

// Healthy is nil unless this process holds a Lease that it has failed to renew for long.
func (e *Elector) Healthy(request *http.Request) error {
	if !e.config.Elect {
		return nil
	}
	return e.health.Check(request)
}

// Previous is when a holder before this process last renewed the Lease, as far as this process saw; zero where there was
// none.
func (e *Elector) Previous() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.previous
}

// Holder is the identity of who leads, as far as this process saw; empty where nobody did.
func (e *Elector) Holder() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder
}

// A witness is the lock. It remembers when others held it, and says which right is missing where it is refused.
type witness struct {
	resourcelock.Interface
	elector *Elector
}

func (w witness) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := w.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != w.Identity() {
		w.elector.mu.Lock()
		defer w.elector.mu.Unlock()
		w.elector.previous = record.RenewTime.Time
	}
	return record, raw, w.heard("get", err)
}

func (w witness) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return w.heard("create", w.Interface.Create(ctx, record))
}

func (w witness) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return w.heard("update", w.Interface.Update(ctx, record))
}

func (w witness) heard(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		w.elector.refusals.ReportIn(w.elector.config.Namespace, verb, "leases", "no replica leads, and nothing is written", err)
	}
	return err
}

// Run waits for the Lease and then calls work once, with the right to write and the wish to stop. lead ends at once when
// the Lease is lost. When ctx ends, stop closes first; the Lease is renewed until work has returned and then released.
// Without election work is called at once. Run returns what work does, or ErrLost.
func (e *Elector) Run(ctx context.Context, work Work) error {
	if !e.config.Elect {
		return work(context.WithoutCancel(ctx), ctx.Done())
	}
	// The election outlives ctx by as long as work needs to stop.
	election, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	t := &term{config: e.config, work: work, stop: ctx.Done(), release: release, done: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: witness{&resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.config.Namespace, Name: e.config.Name},
			Client:     e.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.config.Identity},
		}, e},
		LeaseDuration:   e.config.Duration,
		RenewDeadline:   e.config.RenewDeadline,
		RetryPeriod:     e.config.RetryPeriod,
		ReleaseOnCancel: true,
		WatchDog:        e.health,
		Name:            e.config.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: t.lead,
			OnStoppedLeading: func() {},
			OnNewLeader:      e.follow,
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the election: %w", err)
	}
	t.elector = elector
	defer context.AfterFunc(ctx, t.stopWaiting)()
	elector.Run(election)
	return t.end(election.Err() == nil)
}

func (e *Elector) follow(holder string) {
	e.mu.Lock()
	e.holder = holder
	e.mu.Unlock()
	if holder != "" && holder != e.config.Identity {
		slog.Info("another replica leads", "holder", holder)
	}
}

// Work is what the holder of the Lease does: see Elector.Run.
type Work func(lead context.Context, stop <-chan struct{}) error

// A term is the time for which one process waits for the Lease and holds it.
type term struct {
	config  Config
	elector *leaderelection.LeaderElector
	work    Work
	stop    <-chan struct{}
	release context.CancelFunc
	done    chan struct{} // closed when work has returned

	mu      sync.Mutex
	started bool // guarded by mu, as all below
	over    bool
	lost    bool
	result  error
}

// lead does the work. The elector calls it on a goroutine of its own, which may come to run only when all is over.
func (t *term) lead(lead context.Context) {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	t.started = true
	t.mu.Unlock()
	defer close(t.done)
	defer t.release()

	lead, cut := context.WithCancel(lead)
	var watching sync.WaitGroup
	watching.Go(func() { t.watch(lead, cut) })
	defer watching.Wait()
	defer cut()
	slog.Info("leading", "identity", t.config.Identity)
	err := t.work(lead, t.stop)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result = err
}

// watch ends the right to write when the Lease was not renewed for RenewDeadline. The elector notices too, but then tries
// to release the Lease first, which takes as long again where the API server hangs: another process might lead by then.
func (t *term) watch(lead context.Context, cut context.CancelFunc) {
	tick := time.NewTicker(t.config.RetryPeriod / 2)
	defer tick.Stop()
	for {
		select {
		case <-lead.Done():
			return
		case <-tick.C:
		}
		if t.elector.Check(t.config.RenewDeadline-t.config.Duration) != nil {
			t.mu.Lock()
			t.lost = true
			t.mu.Unlock()
			cut()
			return
		}
	}
}

// stopWaiting ends an election in which this process does not lead. One that leads releases when work has stopped.
func (t *term) stopWaiting() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.started {
		t.over = true
		t.release()
	}
}

// end waits for work and says how the term ended.
func (t *term) end(lost bool) error {
	t.mu.Lock()
	t.over = true
	started := t.started
	t.mu.Unlock()
	if started {
		<-t.done
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if lost || t.lost {
		return ErrLost
	}
	return t.result
}
