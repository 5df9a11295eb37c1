package karpenter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCapacityType(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"Karpenter":        {map[string]string{"karpenter.sh/capacity-type": "reserved"}, "reserved"},
		"Karpenter on EKS": {map[string]string{"karpenter.sh/capacity-type": "on-demand", "eks.amazonaws.com/capacityType": "SPOT"}, "on-demand"},
		"EKS spot":         {map[string]string{"eks.amazonaws.com/capacityType": "SPOT"}, "spot"},
		"EKS":              {map[string]string{"eks.amazonaws.com/capacityType": "ON_DEMAND"}, "on-demand"},
		"GKE spot":         {map[string]string{"cloud.google.com/gke-spot": "true"}, "spot"},
		"GKE preemptible":  {map[string]string{"cloud.google.com/gke-preemptible": "true"}, "spot"},
		"AKS spot":         {map[string]string{"kubernetes.azure.com/scalesetpriority": "spot"}, "spot"},
		"not told":         {nil, ""},
	} {
		if got := capacityType(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}}); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// The first signal counts until all that follows from it was written, over failures too; what comes meanwhile waits anew.
func TestReactions(t *testing.T) {
	r := newReactions()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	expect := func(when string, want int) {
		t.Helper()
		got, known := r.since("n1")
		if known != (want > 0) || known && !got.Equal(at(want)) {
			t.Errorf("%s: since %v, known %v, want %d", when, got, known, want)
		}
	}
	r.signal("n1", at(1))
	r.signal("n1", at(2))
	expect("before anybody looks", 0)
	r.start("n1")
	expect("at the first look", 1)
	r.signal("n1", at(3))
	r.start("n1")
	expect("after a failure", 1)
	r.signal("n1", at(4))
	r.done("n1")
	expect("when it is done", 0)
	r.start("n1")
	expect("for what came meanwhile", 4)
	r.done("n1")
	r.start("n1")
	expect("without a signal", 0)
}
