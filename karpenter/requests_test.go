package karpenter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

// The object that a pod's end comes with has a grace period of zero, and a deletionTimestamp that includes the one before.
func TestRequestsOfDeletion(t *testing.T) {
	asked := time.Date(2026, 12, 1, 19, 0, 0, 0, time.UTC)
	seen := func(grace, own int64, marked bool) *corev1.Pod {
		until := metav1.NewTime(asked.Add(time.Duration(max(grace, 1)) * time.Second))
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "u", DeletionTimestamp: &until, DeletionGracePeriodSeconds: &grace},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &own},
		}
		if marked {
			pod.Annotations = map[string]string{domain.AtRisk: "{}"}
		}
		return pod
	}
	last := func(own int64, after time.Duration) *corev1.Pod {
		pod := seen(0, own, true)
		until := metav1.NewTime(asked.Add(after))
		pod.DeletionTimestamp = &until
		return pod
	}
	for name, tc := range map[string]struct {
		updates []*corev1.Pod
		last    *corev1.Pod
		want    time.Time
	}{
		"seen":                       {[]*corev1.Pod{seen(5, 30, true)}, last(30, 5*time.Second), asked},
		"the first request counts":   {[]*corev1.Pod{seen(30, 30, true), last(30, 3*time.Second)}, last(30, 30*time.Second), asked},
		"unseen: the pod's own time": {nil, last(30, 30*time.Second), asked},
		"an unmarked pod":            {[]*corev1.Pod{seen(5, 1, false)}, last(1, 5*time.Second), asked.Add(4 * time.Second)},
		"removed at once":            {nil, &corev1.Pod{}, time.Time{}},
	} {
		r := newRequests()
		for _, pod := range tc.updates {
			r.note(pod)
		}
		if got := r.of(tc.last); !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
