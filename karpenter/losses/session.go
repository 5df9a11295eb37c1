package losses

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
	// askAgainAfter is how soon a write is tried again for which a right was missing.
	askAgainAfter = time.Minute
	// sweepEvery is how often old records are removed: ages are in days.
	sweepEvery = 10 * time.Minute
)

// A session is the time in which PodLoss is served and may be read: a cache of all records, and the queue of pods whose
// record may have to change.
type session struct {
	*Recorder
	queue    workqueue.TypedRateLimitingInterface[key]
	informer cache.SharedIndexInformer
	// gone closes the session: PodLoss is no longer served.
	gone context.CancelFunc
}

// record runs one session. It returns at once where PodLoss is not served or may not be read, which is said once.
func (r *Recorder) record(ctx context.Context, stop <-chan struct{}) {
	_, err := r.client.Resource(v1alpha1.PodLosses).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		if r.miss() {
			r.options.Lease.finish(ctx, r.options.Clock(), r.options.Retention)
		}
		return
	case apierrors.IsForbidden(err):
		r.options.Refused("list", "podlosses."+v1alpha1.GroupVersion.Group, "", err)
		return
	case err != nil:
		if ctx.Err() == nil {
			slog.Warn("records of losses cannot be read, trying again", "error", err)
		}
		return
	}
	served, gone := context.WithCancel(ctx)
	defer gone()
	s, err := r.newSession(gone)
	if err != nil {
		slog.Error("losses are not recorded", "error", err)
		return
	}
	s.run(ctx, served, stop)
}

func (r *Recorder) newSession(gone context.CancelFunc) (*session, error) {
	s := &session{
		Recorder: r,
		gone:     gone,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[key]{Name: "losses", MetricsProvider: r.options.Metrics}),
		informer: dynamicinformer.NewFilteredDynamicInformer(r.client, v1alpha1.PodLosses, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer(),
	}
	if err := s.informer.SetTransform(trim); err != nil {
		return nil, err
	}
	if err := s.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { s.watchFailed(err) }); err != nil {
		return nil, err
	}
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(object any, earlier bool) {
		// Later ones are this process's own, and their pods' markers may not have reached the cache.
		if record, ok := object.(*v1alpha1.PodLoss); ok && earlier && record.Status.State == v1alpha1.Open {
			s.queue.Add(keyFor(record))
		}
	}})
	return s, err
}

// trim makes a record of what the server sends, without its manifest, by far the most of it, which nothing here reads.
func trim(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	unstructured.RemoveNestedField(u.Object, "spec", "manifest")
	u.SetManagedFields(nil)
	return v1alpha1.Parse(u)
}

func (s *session) watchFailed(err error) {
	switch {
	case apierrors.IsNotFound(err):
		s.gone()
	case apierrors.IsForbidden(err):
		s.options.Refused("watch", "podlosses."+v1alpha1.GroupVersion.Group, "", err)
	}
}

// run works until stop closes or served ends, and then finishes what waits for as long as ctx allows.
func (s *session) run(ctx, served context.Context, stop <-chan struct{}) {
	watching, unwatch := context.WithCancel(served)
	var watch, workers sync.WaitGroup
	defer watch.Wait()
	defer unwatch()
	watch.Go(func() { s.informer.RunWithContext(watching) })
	if !cache.WaitForCacheSync(either(watching, served.Done(), stop), s.informer.HasSynced) {
		return
	}
	missed := s.begin(s)
	slog.Info("losses are recorded")
	if missed {
		s.options.Ready()
	}
	for range recorders {
		workers.Go(func() { s.work(ctx) })
	}
	watch.Go(func() { s.options.Lease.begin(watching, s.options.Clock(), s.options.Retention) })
	s.sweepUntil(served, stop)
	s.end()
	s.queue.ShutDown()
	workers.Wait()
	if served.Err() != nil && ctx.Err() == nil {
		s.options.Lease.finish(ctx, s.options.Clock(), s.options.Retention)
		s.miss()
	}
}

// either closes when one of the two does, or with the context.
func either(ctx context.Context, a, b <-chan struct{}) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-a:
		case <-b:
		case <-ctx.Done():
		}
	}()
	return done
}

func (s *session) work(ctx context.Context) {
	for {
		k, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		s.process(ctx, k)
	}
}

// process looks at one pod's record. A refusal is tried again after a while, what is wrong with the record never.
func (s *session) process(ctx context.Context, k key) {
	defer s.queue.Done(k)
	if ctx.Err() != nil {
		return
	}
	err := s.reconcile(ctx, k)
	switch {
	case err == nil:
		s.queue.Forget(k)
		return
	case errors.Is(err, errUnheard):
		s.queue.AddRateLimited(k)
		return
	case !errors.Is(err, errNoRoom):
		s.failed.Add(1)
	}
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errNoRoom):
		s.dropped.Add(1)
		s.queue.Forget(k)
	case isNamespaceGone(err):
		s.queue.Forget(k) // the record would go with it
		s.forget(k, s.toldOf(k))
	case apierrors.IsForbidden(err):
		s.queue.AddAfter(k, askAgainAfter)
	case apierrors.IsInvalid(err):
		slog.Error("a record of a loss is not valid and is not written", "pod", k.namespace+"/"+k.name, "error", err)
		s.queue.Forget(k)
	default:
		slog.Debug("a record of a loss is tried again", "pod", k.namespace+"/"+k.name, "error", err)
		s.queue.AddRateLimited(k)
	}
}

func (s *session) cached(k key) *v1alpha1.PodLoss {
	object, exists, err := s.informer.GetStore().GetByKey(k.namespace + "/" + k.recordName())
	if err != nil || !exists {
		return nil
	}
	record, _ := object.(*v1alpha1.PodLoss)
	return record
}
