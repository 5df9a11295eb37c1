package losses

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// surplus lists the records to remove: those that ended before the retention, and of each namespace that has more than
// the limit, the withdrawn and then the longest closed. Open records are never surplus. It is pure.
func surplus(records []*v1alpha1.PodLoss, now time.Time, retention time.Duration, limit int) []*v1alpha1.PodLoss {
	var old []*v1alpha1.PodLoss
	kept := map[string][]*v1alpha1.PodLoss{}
	for _, record := range records {
		if at, ended := endOf(record); ended && now.Sub(at) > retention {
			old = append(old, record)
			continue
		}
		kept[record.Namespace] = append(kept[record.Namespace], record)
	}
	for _, inNamespace := range kept {
		over := len(inNamespace) - limit
		if over <= 0 {
			continue
		}
		ended := slices.DeleteFunc(inNamespace, func(r *v1alpha1.PodLoss) bool { _, ended := endOf(r); return !ended })
		slices.SortFunc(ended, dispensable)
		old = append(old, ended[:min(over, len(ended))]...)
	}
	return old
}

// dispensable orders ended records: withdrawn before closed, the oldest first.
func dispensable(a, b *v1alpha1.PodLoss) int {
	rank := func(r *v1alpha1.PodLoss) int {
		if r.Status.State == v1alpha1.Withdrawn {
			return 0
		}
		return 1
	}
	atA, _ := endOf(a)
	atB, _ := endOf(b)
	return cmp.Or(cmp.Compare(rank(a), rank(b)), atA.Compare(atB), cmp.Compare(a.Name, b.Name))
}

// endOf is when the record was closed or withdrawn.
func endOf(record *v1alpha1.PodLoss) (at time.Time, ended bool) {
	for _, t := range []*metav1.Time{record.Status.LostAt, record.Status.WithdrawnAt} {
		if t != nil {
			return t.Time, record.Status.State != v1alpha1.Open
		}
	}
	return record.CreationTimestamp.Time, record.Status.State != v1alpha1.Open
}

// sweepUntil removes surplus records from time to time, until stop closes or the context ends.
func (s *session) sweepUntil(ctx context.Context, stop <-chan struct{}) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		s.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

func (s *session) sweep(ctx context.Context) {
	var records []*v1alpha1.PodLoss
	for _, object := range s.informer.GetStore().List() {
		if record, ok := object.(*v1alpha1.PodLoss); ok {
			records = append(records, record)
		}
	}
	for _, record := range surplus(records, s.options.Clock(), s.options.Retention, s.options.PerNamespace) {
		if !s.remove(ctx, record) {
			return
		}
	}
}

// makeRoom removes the most dispensable record of a namespace that has as many as it may have. It returns errNoRoom where
// there is none, or none that can be removed.
func (s *session) makeRoom(ctx context.Context, namespace string) error {
	objects, err := s.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil || len(objects) < s.options.PerNamespace {
		return err
	}
	var records []*v1alpha1.PodLoss
	for _, object := range objects {
		if record, ok := object.(*v1alpha1.PodLoss); ok {
			records = append(records, record)
		}
	}
	old := surplus(records, s.options.Clock(), s.options.Retention, s.options.PerNamespace-1)
	if len(old) == 0 {
		slog.Warn("a loss is not recorded: the namespace has as many open records as it may have (raise --losses-per-namespace)",
			"namespace", namespace, "records", len(records))
		return errNoRoom
	}
	for _, record := range old {
		if !s.remove(ctx, record) {
			return errNoRoom
		}
	}
	return nil
}

// remove deletes a record unless it has changed. It is false where there is no use in trying others.
func (s *session) remove(ctx context.Context, record *v1alpha1.PodLoss) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.own.Remove(keyFor(record))
	err := s.client.Resource(v1alpha1.PodLosses).Namespace(record.Namespace).Delete(ctx, record.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &record.UID, ResourceVersion: &record.ResourceVersion},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return true
	case apierrors.IsForbidden(err):
		s.options.Refused("delete", "podlosses."+v1alpha1.GroupVersion.Group, record.Namespace, err)
	default:
		slog.Warn("an old record of a loss could not be removed", "record", record.Namespace+"/"+record.Name, "error", err)
	}
	return false
}
