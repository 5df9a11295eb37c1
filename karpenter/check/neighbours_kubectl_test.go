package check

import (
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubectl/pkg/drain"
)

// drainMessages are kubectl drain's reasons to refuse a pod, by a part of its message, and how the tables name them.
var drainMessages = []struct{ part, name string }{
	{"Pods that declare no controller", "no controller"},
	{"Pods with local storage", "local storage"},
	{"DaemonSet-managed Pods", "DaemonSet"},
	{"not found", "DaemonSet not found"},
}

// kubectlSays runs kubectl drain's own filters on one pod, first without flags, then with those of the usual drainers.
// The DaemonSets are what its one lookup finds.
func kubectlSays(t *testing.T, pod *corev1.Pod, daemonSets []runtime.Object, now time.Time) string {
	t.Helper()
	pod = pod.DeepCopy()
	if pod.DeletionTimestamp != nil { // the filter reads the clock itself: keep the age, not the date
		at := metav1.NewTime(time.Now().Add(pod.DeletionTimestamp.Sub(now)))
		pod.DeletionTimestamp = &at
	}
	plain := filtered(t, drain.Helper{}, pod, daemonSets)
	forced := filtered(t, drain.Helper{
		Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, SkipWaitForDeleteTimeoutSeconds: 60,
	}, pod, daemonSets)
	if plain == forced {
		return plain
	}
	return plain + "; forced: " + forced
}

// filtered says what becomes of the pod in a drain with these flags.
func filtered(t *testing.T, helper drain.Helper, pod *corev1.Pod, daemonSets []runtime.Object) string {
	t.Helper()
	helper.Ctx, helper.Out, helper.ErrOut = t.Context(), io.Discard, io.Discard
	helper.Client = fake.NewClientset(append([]runtime.Object{pod}, daemonSets...)...)
	list, errs := helper.GetPodsForDeletion(pod.Spec.NodeName)
	switch {
	case len(errs) > 0:
		return "refuses (" + drainMessage(t, errs[0]) + ")"
	case len(list.Pods()) == 0:
		return "skips"
	case list.Warnings() != "":
		return "evicts, warns"
	}
	return "evicts"
}

func drainMessage(t *testing.T, err error) string {
	t.Helper()
	for _, m := range drainMessages {
		if strings.Contains(err.Error(), m.part) {
			return m.name
		}
	}
	t.Fatalf("kubectl drain says something that the tables have no name for: %v", err)
	return ""
}
