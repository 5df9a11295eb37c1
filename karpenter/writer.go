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
	behind             // the pod has changed since it was judged: it must be judged again
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

// An ownWrite is what a pod bears from a resourceVersion on, and whether it was being deleted by then.
type ownWrite struct {
	version, text string
	deleting      bool
}

func newStatusWriter(client kubernetes.Interface) statusWriter {
	return statusWriter{client, lru.New(writesRemembered)}
}

// mark writes a marker whatever else has changed of the pod, because evictions do not wait. A removal rests on what the pod
// was when it was judged, and is refused where that is over:
//
//  1. a taint is taken back, and the pod, which lives by the cache, is to bear no marker any more;
//  2. an eviction gives it a deletionTimestamp: it is being lost now, and keeps its marker (DESIGN.md section 5);
//  3. the removal of 1 arrives. It names the resourceVersion before 2, and the API server answers 409.
func (w statusWriter) mark(ctx context.Context, pod *corev1.Pod, text string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	version := ""
	if text == "" {
		version = w.judged(pod)
	}
	after, err := w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, markPatch(pod, text, version),
		metav1.PatchOptions{FieldManager: domain.FieldManager}, "status")
	switch {
	case err == nil:
		w.own.Add(pod.UID, ownWrite{after.ResourceVersion, text, after.DeletionTimestamp != nil})
		return written, nil
	case text == "" && apierrors.IsConflict(err):
		return behind, nil
	case apierrors.IsNotFound(err), isOtherUID(err):
		return anotherPod, nil
	}
	return 0, fmt.Errorf("patching pods/status of %s/%s: %w", pod.Namespace, pod.Name, err)
}

// current prefers an own write to a cache that is older than it. Without this, a reconcile that comes between the write
// and its watch event would write the same again.
func (w statusWriter) current(pod *corev1.Pod) (string, bool) {
	wrote, newer := w.newer(pod)
	if !newer {
		return markOf(pod)
	}
	return wrote.text, wrote.text != ""
}

// newer is the own write that the pod from the cache is older than, if there is one.
func (w statusWriter) newer(pod *corev1.Pod) (ownWrite, bool) {
	own, known := w.own.Get(pod.UID)
	if !known {
		return ownWrite{}, false
	}
	wrote := own.(ownWrite)
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, wrote.version); err != nil || order >= 0 {
		w.own.Remove(pod.UID)
		return ownWrite{}, false
	}
	return wrote, true
}

// judged is the resourceVersion of the pod that a removal rests on: the cache's, or that of an own write which the cache has
// not seen yet, unless its answer already told of a deletion that the cache does not have.
func (w statusWriter) judged(pod *corev1.Pod) string {
	if wrote, newer := w.newer(pod); newer && !wrote.deleting {
		return wrote.version
	}
	return pod.ResourceVersion
}

// markPatch is a JSON merge patch that names the pod's UID. A pod that was recreated under the name has another, and a
// UID cannot be changed, so that the API server refuses the patch. A resourceVersion, where it is not empty, has it refused
// on any change of the pod since.
func markPatch(pod *corev1.Pod, text, resourceVersion string) []byte {
	var value *string // null removes the annotation
	if text != "" {
		value = &text
	}
	metadata := map[string]any{"uid": pod.UID, "annotations": map[string]*string{domain.AtRisk: value}}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // strings in maps can always be written
	}
	return patch
}

// isOtherUID tells whether the API server refused a write because the object of that name is another one: 422 on
// metadata.uid. A 409 is no such thing: it says that others wrote to the pod meanwhile, and is tried again.
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
