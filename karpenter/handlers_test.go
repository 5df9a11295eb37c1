package karpenter_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// A stranded pod's marker goes when a node joins that takes it, and comes back when that is cordoned, although nothing
// changes of the node that goes.
func TestStrandedFollowsOtherNodes(t *testing.T) {
	l := newLab(t)
	label := func(node string) {
		t.Helper()
		text := []byte(`{"metadata":{"labels":{"example.com/only":"` + l.namespace + `"}}}`)
		_, err := l.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, text, metav1.PatchOptions{})
		l.must(err)
	}
	going := l.apiNode()
	label(going)
	spec := podSpec(going)
	spec.NodeSelector = map[string]string{"example.com/only": l.namespace}
	pod := l.replicaSetOf("web", spec)
	l.startMarking(nil, fate.Lost, fate.Stranded)
	l.taint(going, true)
	l.waitMark(pod, true)
	fitting := l.apiNode()
	label(fitting)
	l.waitMark(pod, false)
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	_, err := l.client.CoreV1().Nodes().Patch(t.Context(), fitting, types.MergePatchType, cordon, metav1.PatchOptions{})
	l.must(err)
	l.waitMark(pod, true)
}
