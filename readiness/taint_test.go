package readiness

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParseTaint(t *testing.T) {
	for text, want := range map[string]string{
		TaintKey:                            TaintKey + ":NoSchedule",
		TaintKey + ":NoExecute":             TaintKey + ":NoExecute",
		TaintKey + "=pending:NoSchedule":    TaintKey + ":NoSchedule",
		"example.com/gate:PreferNoSchedule": "example.com/gate:PreferNoSchedule",
		"":                                  "no key of a taint",
		"a/b/c":                             "no key of a taint",
		":NoSchedule":                       "no key of a taint",
		TaintKey + ":":                      "no effect of a taint",
		TaintKey + ":noschedule":            "no effect of a taint",
		TaintKey + ":NoSchedule:NoSchedule": "no effect of a taint",
		"readiness.k8s.io/" + strings.Repeat("x", 64): "no key of a taint",
	} {
		got := ""
		if taint, err := ParseTaint(text); err != nil {
			got = err.Error()
		} else {
			got = taint.String()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Key and effect decide, the value does not.
func TestTaintOn(t *testing.T) {
	node := testNode()
	other := corev1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoExecute}
	node.Spec.Taints = []corev1.Taint{other}
	if DefaultTaint.On(node) {
		t.Error("another effect counts")
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: TaintKey, Value: "anything", Effect: corev1.TaintEffectNoSchedule})
	if !DefaultTaint.On(node) {
		t.Error("the value counts")
	}
	if left := DefaultTaint.Without(node); len(left) != 1 || left[0] != other || len(node.Spec.Taints) != 2 {
		t.Errorf("left are %v of %v", left, node.Spec.Taints)
	}
}

func TestHolding(t *testing.T) {
	var h Holding
	start := time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	at := func(after time.Duration, limit time.Duration, beyond bool, wait time.Duration) {
		t.Helper()
		if b, w := h.Beyond(limit, start.Add(after)); b != beyond || w != wait {
			t.Errorf("after %s: beyond %t, wait %s; want %t, %s", after, b, w, beyond, wait)
		}
	}
	at(0, time.Minute, false, 0)
	h.See(true, start)
	h.See(true, start.Add(time.Hour)) // the first answer stays
	at(0, time.Minute, false, time.Minute)
	at(59*time.Second, time.Minute, false, time.Second)
	at(time.Minute, time.Minute, true, 0)
	at(time.Hour, 0, false, 0)
	h.See(false, start)
	at(time.Hour, time.Minute, false, 0)
	h.See(true, start.Add(time.Hour))
	at(time.Hour, time.Minute, false, time.Minute)
}

// A heartbeat is no change; everything that is read is one.
func TestNodeChanged(t *testing.T) {
	result := Result{Status: corev1.ConditionFalse, Reason: MirrorMissing, Message: "m"}
	base := testNode()
	base.Annotations, base.Labels = map[string]string{StaticPodsAnnotation: "{}"}, map[string]string{nodePoolLabel: "a"}
	condition, _ := result.Condition(base, DefaultCondition, time.Now())
	base.Status.Conditions = []corev1.NodeCondition{condition, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat": {func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions[1].LastHeartbeatTime.Time = time.Now()
			n.Status.Conditions[1].Status = corev1.ConditionFalse
			n.Status.Allocatable = corev1.ResourceList{}
			n.Labels["other"] = "x"
		}, false},
		"the condition's heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime.Time = time.Now() }, false},
		"deletion":                  {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true},
		"another Node":              {func(n *corev1.Node) { n.UID = "other" }, true},
		"boot":                      {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }, true},
		"set":                       {func(n *corev1.Node) { n.Annotations[StaticPodsAnnotation] = "[]" }, true},
		"node pool":                 {func(n *corev1.Node) { delete(n.Labels, nodePoolLabel) }, true},
		"registration":              {func(n *corev1.Node) { n.Labels[registeredLabel] = "true" }, true},
		"taint":                     {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: unregisteredTaint}} }, true},
		"condition is gone":         {func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[1:] }, true},
		"condition says otherwise":  {func(n *corev1.Node) { n.Status.Conditions[0].Message = "forged" }, true},
	} {
		after := base.DeepCopy()
		test.change(after)
		if got := NodeChanged(base, after, DefaultCondition); got != test.want {
			t.Errorf("%s: changed %t", name, got)
		}
	}
}

func TestPodChanged(t *testing.T) {
	base := mirror("h", "1")
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"status of containers": {func(p *corev1.Pod) {
			p.ResourceVersion, p.Status.Phase = "2", corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
		}, false},
		"another pod": {func(p *corev1.Pod) { p.UID = "other" }, true},
		"resized":     {func(p *corev1.Pod) { p.Generation++ }, true},
		"bound":       {func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, true},
		"Terminating": {func(p *corev1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp }, true},
		"finished":    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"owner":       {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }, true},
		"hash":        {func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "g" }, true},
	} {
		after := base.DeepCopy()
		test.change(after)
		if got := PodChanged(base, after); got != test.want {
			t.Errorf("%s: changed %t", name, got)
		}
	}
}
