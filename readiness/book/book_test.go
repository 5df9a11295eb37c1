package book

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/readiness"
)

// The mirror pod by the book. rollcall-controller runs without --release-taint, so that the test decides when the node is
// released, as the Node Readiness Controller would.
func TestMirrorPodByTheBook(t *testing.T) {
	b := openBook(t)

	b.step("the node joins with the taint and its static pod gets a mirror")
	mirror := b.mirrorOtherThan("")
	b.says(corev1.ConditionTrue, readiness.AllMirrored)
	b.verdictIsStatic()
	container := b.container()

	b.step("the mirror is deleted through the API: it is Terminating, and comes back with another UID")
	b.follow()
	b.deleteMirror(metav1.DeleteOptions{})
	b.says(corev1.ConditionFalse, readiness.MirrorStale)
	b.verdictIsStatic()
	mirror = b.mirrorOtherThan(mirror)
	b.says(corev1.ConditionTrue, readiness.AllMirrored)
	b.verdictIsStatic()
	t.Logf("the condition: %v", b.told())

	b.step("it is deleted at once, and the API server refuses its successor: it is gone")
	b.follow()
	b.must(b.cluster.RefuseMirrors(t.Context(), node, namespace))
	b.deleteMirror(*metav1.NewDeleteOptions(0))
	b.says(corev1.ConditionFalse, readiness.MirrorMissing)
	b.must(b.cluster.Allow(t.Context(), node))
	mirror = b.mirrorOtherThan(mirror)
	b.says(corev1.ConditionTrue, readiness.AllMirrored)
	b.verdictIsStatic()
	t.Logf("the condition: %v", b.told())
	if !b.held() {
		t.Error("the node has lost its taint, and nobody took it")
	}

	b.step("the node is released, and the mirror deleted once more: the node is not held again")
	b.release()
	b.follow()
	b.deleteMirror(metav1.DeleteOptions{})
	mirror = b.mirrorOtherThan(mirror)
	b.says(corev1.ConditionTrue, readiness.AllMirrored)
	b.verdictIsStatic()
	if b.wasHeld() {
		t.Error("the node that was released was held again")
	}

	b.step("the mirror's image is patched: nothing changes on the node")
	const patch = `{"spec":{"containers":[{"name":"c","image":"another:2"}]}}`
	_, err := b.client.CoreV1().Pods(namespace).Patch(t.Context(), mirrorName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	b.must(err)
	b.kubeletHasSeenAll()
	if now := b.container(); now != container {
		t.Errorf("the container was %+v and is %+v", container, now)
	}
	if now := b.mirrorOtherThan(""); now != mirror {
		t.Errorf("the mirror was %s and is %s", mirror, now)
	}
	b.says(corev1.ConditionTrue, readiness.AllMirrored)
	b.verdictIsStatic()

	b.step("its manifest is removed: that ends it")
	b.must(os.Remove(b.manifest()))
	b.eventually("the mirror is gone", func() bool { return b.mirror() == nil })
	b.eventually("the kubelet knows no static pod", func() bool { return len(b.staticPods()) == 0 })
	b.says(corev1.ConditionTrue, readiness.NoStaticPods)
	if slices.Contains(b.verdicts(), mirrorName) {
		t.Error("a pod that is gone has a verdict")
	}
}
