package losses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/domain"
)

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

// errNoRoom says that a namespace has as many records as it may have, all of them open.
var errNoRoom = errors.New("the namespace has no room for another record")

// errUnheard says that a pod is gone whose end this process must hear of: the caches know before their handlers do.
var errUnheard = errors.New("the end of the pod was not heard of yet")

// hearWithin is how often an end is waited for, about three seconds in all, before it counts as missed.
const hearWithin = 6

// reconcile makes the record of one pod right.
func (s *session) reconcile(ctx context.Context, k key) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	t := s.toldOf(k)
	record := s.newest(s.cached(k), k)
	pod := s.pod(k)
	next := decide(record, pod, pod != nil && pod.Annotations[domain.AtRisk] != "", t)
	if next == confirm {
		gone, err := s.isGone(ctx, k)
		switch {
		case err != nil:
			return err
		case gone && t.marked && s.queue.NumRequeues(k) < hearWithin:
			return errUnheard
		case gone:
			next = shut
		default:
			next = leave // its deletion will be heard of
		}
	}
	var err error
	switch next {
	case open:
		err = s.write(ctx, k, t, record, v1alpha1.PodLossStatus{State: v1alpha1.Open})
	case shut:
		err = s.shut(ctx, k, t, record)
	case withdraw:
		at := metav1.NewTime(s.options.Clock())
		err = s.write(ctx, k, t, record, v1alpha1.PodLossStatus{State: v1alpha1.Withdrawn, WithdrawnAt: &at})
	}
	if err == nil {
		s.forget(k, t) // the record is the memory from here on
	}
	return err
}

// shut closes a record. Of a pod that nobody saw go, it is only known that it is gone by now.
func (s *session) shut(ctx context.Context, k key, t told, record *v1alpha1.PodLoss) error {
	at, unseen := t.endedAt, t.ending == Unended
	if unseen {
		at = s.options.Clock()
	}
	lostAt := metav1.NewTime(at)
	err := s.write(ctx, k, t, record, v1alpha1.PodLossStatus{State: v1alpha1.Closed, LostAt: &lostAt, LostAtEstimated: unseen})
	if err == nil && unseen && record != nil {
		s.options.Lost(record)
	}
	return err
}

// isGone asks the server whether no pod of that UID exists any more.
func (s *session) isGone(ctx context.Context, k key) (bool, error) {
	pod, err := s.typed.CoreV1().Pods(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading pod %s/%s: %w", k.namespace, k.name, err)
	}
	return pod.UID != k.uid, nil
}

// write creates the record or brings it up to date. A record that says the same already costs no request.
func (s *session) write(ctx context.Context, k key, t told, record *v1alpha1.PodLoss, status v1alpha1.PodLossStatus) error {
	if record == nil {
		return s.create(ctx, k, t, status)
	}
	spec := record.Spec
	if t.marked {
		spec = t.spec(k)
	}
	if record.Status.State == status.State && same(spec, record.Spec) {
		return nil
	}
	return s.patch(ctx, k, record, spec, status)
}

func (s *session) create(ctx context.Context, k key, t told, status v1alpha1.PodLossStatus) error {
	if err := s.makeRoom(ctx, k.namespace); err != nil {
		return err
	}
	record := &v1alpha1.PodLoss{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.recordName()},
		Spec:       t.spec(k), Status: status,
	}
	if len(t.pod.OwnerReferences) == 0 {
		manifest, err := s.manifest(ctx, k, t.pod)
		if err != nil {
			return err
		}
		record.Spec.Manifest = manifest
	}
	object, err := record.Object()
	if err != nil {
		return err
	}
	records := s.client.Resource(v1alpha1.PodLosses).Namespace(k.namespace)
	created, err := records.Create(ctx, object, metav1.CreateOptions{FieldManager: domain.FieldManager})
	if apierrors.IsAlreadyExists(err) { // the cache is behind
		existing, getErr := records.Get(ctx, record.Name, metav1.GetOptions{})
		if getErr == nil {
			s.remember(k, existing)
		}
	}
	if err != nil {
		return s.explain("create", k, err)
	}
	s.remember(k, created)
	return nil
}

// patch names the resourceVersion that it rests on, so that a leader that was deposed meanwhile cannot undo another's.
func (s *session) patch(ctx context.Context, k key, record *v1alpha1.PodLoss, spec v1alpha1.PodLossSpec, status v1alpha1.PodLossStatus) error {
	specFields, err := fields(spec, "runsOn", "deadline", "owner")
	if err != nil {
		return err
	}
	delete(specFields, "manifest") // it stays what it was
	statusFields, err := fields(status, "lostAt", "lostAtEstimated", "withdrawnAt")
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": record.UID, "resourceVersion": record.ResourceVersion},
		"spec":     specFields, "status": statusFields,
	})
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	after, err := s.client.Resource(v1alpha1.PodLosses).Namespace(k.namespace).Patch(ctx, record.Name, types.MergePatchType, text,
		metav1.PatchOptions{FieldManager: domain.FieldManager})
	if err != nil {
		s.own.Remove(k) // whatever it said, it is not what is there
		return s.explain("patch", k, err)
	}
	s.remember(k, after)
	return nil
}

// fields is the value as a merge patch has it: the named fields are removed where it has none.
func fields(value any, optional ...string) (map[string]any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("writing a patch: %w", err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("writing a patch: %w", err)
	}
	for _, field := range optional {
		if _, set := m[field]; !set {
			m[field] = nil
		}
	}
	return m, nil
}

func (s *session) remember(k key, written *unstructured.Unstructured) {
	if record, err := trim(written); err == nil {
		s.own.Add(k, record)
	}
}

// explain reports a missing right and says what was being done.
func (s *session) explain(verb string, k key, err error) error {
	if apierrors.IsForbidden(err) && !isNamespaceGone(err) {
		s.options.Refused(verb, "podlosses."+v1alpha1.GroupVersion.Group, k.namespace, err)
	}
	return fmt.Errorf("recording the loss of pod %s/%s: %w", k.namespace, k.name, err)
}

// isNamespaceGone tells whether nothing can be made in the namespace any more.
func isNamespaceGone(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

// manifest reads the pod once more, as it is stored: a cache of typed objects knows only the fields that this build knows.
// Of a pod that is gone already the cached one is the best there is; the caches keep the whole spec of ownerless pods.
func (s *session) manifest(ctx context.Context, k key, cached *corev1.Pod) (json.RawMessage, error) {
	pod, err := s.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if err == nil && pod.GetUID() == k.uid {
		return Manifest(pod)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cached)
	if err != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", k.namespace, k.name, err)
	}
	return Manifest(&unstructured.Unstructured{Object: content})
}
