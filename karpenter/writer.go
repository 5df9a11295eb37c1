package karpenter

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

// writeTimeout bounds one write. The API server answers in milliseconds or is in trouble; the rate-limited queue comes
// back to it then.
const writeTimeout = 10 * time.Second

// outcome is what became of a write.
type outcome int

const (
	written    outcome = iota
	anotherPod         // the pod is gone, or another has its name
)

// writesRemembered bounds what is remembered of own writes. It has to last until the cache has caught up, seconds at most.
const writesRemembered = 16384

// A writer makes a pod bear a marker, or none for the empty text. An error that is apierrors.IsForbidden will not go
// away by itself. Safe for concurrent use.
type writer interface {
	mark(ctx context.Context, pod *corev1.Pod, text string) (outcome, error)
	// current is the marker that a pod from the cache bears, own writes that the cache has not seen yet included.
	current(pod *corev1.Pod) (text string, marked bool)
}

// statusWriter writes through pods/status, which leaves the spec and the owners of a pod alone, whatever is sent
// (k8s.io/kubernetes pkg/registry/core/pod/strategy.go podStatusStrategy).
type statusWriter struct {
	client kubernetes.Interface
	own    *lru.Cache // of ownWrite by UID
}

// An ownWrite is what a pod bears from a resourceVersion on.
type ownWrite struct{ version, text string }

func newStatusWriter(client kubernetes.Interface) statusWriter {
	return statusWriter{client, lru.New(writesRemembered)}
}

func (w statusWriter) mark(ctx context.Context, pod *corev1.Pod, text string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	after, err := w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, markPatch(pod, text),
		metav1.PatchOptions{FieldManager: domain.FieldManager}, "status")
	switch {
	case err == nil:
		w.own.Add(pod.UID, ownWrite{after.ResourceVersion, text})
		return written, nil
	case apierrors.IsNotFound(err), isOtherUID(err):
		return anotherPod, nil
	}
	return 0, fmt.Errorf("patching pods/status of %s/%s: %w", pod.Namespace, pod.Name, err)
}

// current prefers an own write to a cache that is older than it. Without this, a reconcile that comes between the write
// and its watch event would write the same again.
func (w statusWriter) current(pod *corev1.Pod) (string, bool) {
	own, known := w.own.Get(pod.UID)
	if !known {
		return markOf(pod)
	}
	wrote := own.(ownWrite)
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, wrote.version); err != nil || order >= 0 {
		w.own.Remove(pod.UID)
		return markOf(pod)
	}
	return wrote.text, wrote.text != ""
}

// markPatch is a JSON merge patch that names the pod's UID. A pod that was recreated under the name has another, and a
// UID cannot be changed, so that the API server refuses the patch.
func markPatch(pod *corev1.Pod, text string) []byte {
	var value *string // null removes the annotation
	if text != "" {
		value = &text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID,
		"annotations": map[string]*string{domain.AtRisk: value},
	}})
	if err != nil {
		panic(err) // strings in maps can always be written
	}
	return patch
}

// isOtherUID tells whether the API server refused a write because the object of that name is another one: 422 on
// metadata.uid. A 409 is no such thing: it says that others wrote to the pod all the time, and is tried again.
func isOtherUID(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

// dryWriter writes nothing. It takes what it said of a pod for what the pod bears, so that a decision is reported once
// and not each time the unchanged pod is looked at.
type dryWriter struct {
	said *lru.Cache // of saying by UID
}

// A saying is what a pod should bear in place of what it does.
type saying struct{ bears, text string }

func newDryWriter() dryWriter { return dryWriter{lru.New(writesRemembered)} }

func (w dryWriter) mark(_ context.Context, pod *corev1.Pod, text string) (outcome, error) {
	bears, _ := markOf(pod)
	w.said.Add(pod.UID, saying{bears, text})
	return written, nil
}

func (w dryWriter) current(pod *corev1.Pod) (string, bool) {
	bears, marked := markOf(pod)
	said, known := w.said.Get(pod.UID)
	if !known || said.(saying).bears != bears {
		return bears, marked
	}
	text := said.(saying).text
	return text, text != ""
}
