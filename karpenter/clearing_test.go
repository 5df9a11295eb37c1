package karpenter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

func TestClearingSaysWhy(t *testing.T) {
	mark := func(cause string) string {
		return Marker{Verdict: fate.Lost, Reason: fate.NoController, State: Pending, Cause: cause, Node: "n1", Since: now}.String()
	}
	going := map[string]goingNode{"n1": {}}
	for name, tc := range map[string]struct {
		was, node string
		going     map[string]goingNode
		fate      *fate.Fate
		want      string
	}{
		"taint gone":        {was: mark("karpenter.sh/disrupted"), node: "n1", want: "node n1 stays: the taint karpenter.sh/disrupted is gone or counts no more"},
		"claim stays":       {was: mark(NodeClaimDeleted), node: "n1", want: "node n1 stays: its NodeClaim is not being deleted any more"},
		"node is back":      {was: mark(NodeDeleted), node: "n1", want: "node n1 stays: it exists and is not being deleted"},
		"collateral":        {was: mark("spot-interruption"), node: "n2", want: "node n1 stays: the taint spot-interruption is gone or counts no more"},
		"verdict changed":   {was: mark(NodeClaimDeleted), node: "n1", going: going, fate: &fate.Fate{Verdict: fate.Returns, Reason: fate.ReplicaSet}, want: "the verdict is now Returns (ReplicaSet)"},
		"no more by it":     {was: mark(NodeClaimDeleted), node: "n2", going: going, want: "the loss of the pod no longer follows from node n1"},
		"runs nowhere":      {was: mark(NodeClaimDeleted), want: "the pod runs on no node"},
		"forged":            {was: "x", node: "n1", want: "the annotation is none that rollcall writes"},
		"forged, and moved": {was: "{}", want: "the annotation is none that rollcall writes"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: tc.node}}
			var fates []fate.Fate
			if tc.fate != nil {
				tc.fate.Pod = pod
				fates = append(fates, *tc.fate)
			}
			writes := []write{{pod: pod, was: tc.was}, {pod: pod, was: tc.was, text: "a mark"}}
			explain(writes, tc.going, fates)
			if writes[0].why != tc.want || writes[1].why != "" {
				t.Errorf("got %q and %q, want %q", writes[0].why, writes[1].why, tc.want)
			}
		})
	}
}
