package readiness

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b1"}},
	}
}

func static(hash, cpu string) StaticPod {
	return StaticPod{Namespace: "edge", Name: "tunnel-n1", Hash: hash, CPU: resource.MustParse(cpu), Memory: resource.MustParse("64Mi")}
}

func mirror(hash, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "edge", Name: "tunnel-n1", UID: "m1",
			Annotations:     map[string]string{corev1.MirrorPodAnnotationKey: hash},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid"}},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name:      "c",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("64Mi")}},
		}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// What counts as a mirror.
func TestMirrors(t *testing.T) {
	const content, other = "c3038405f635ae9ae6340978b5f90d2b", "17ccf3c2366b159bdbf95b7f0288cc89"
	sidecar := corev1.ContainerRestartPolicyAlways
	for _, test := range []struct {
		name   string
		want   StaticPod
		mirror *corev1.Pod
		reason string
	}{
		{"hash equal", static(content, "1"), mirror(content, "1"), AllMirrored},
		{"hash of the content equal: requests play no part", static(content, "1"), mirror(content, "500m"), AllMirrored},
		{"hash differs", static(content, "1"), mirror(other, "1"), MirrorStale},
		{"fixed UID, requests less", static("fixed-uid", "1"), mirror("fixed-uid", "500m"), MirrorStale},
		{"fixed UID, requests equal", static("fixed-uid", "1"), mirror("fixed-uid", "1000m"), AllMirrored},
		{"fixed UID of a former manifest", static("fixed-uid", "1"), mirror(content, "1"), MirrorStale},
		{"no hash, requests raised by a LimitRange", static("", "1"), mirror(content, "2"), AllMirrored},
		{"no hash, requests less", static("", "1"), mirror(content, "999m"), MirrorStale},
		{"no hash, a sidecar adds up", static("", "1"), mirror(content, "500m", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: &sidecar, Resources: p.Spec.Containers[0].Resources}}
		}), AllMirrored},
		{"no hash, pod-level requests", static("", "1"), mirror(content, "100m", func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}}
		}), AllMirrored},
		{"no mirror annotation", static("", "1"), mirror("", "1", func(p *corev1.Pod) { p.Annotations = nil }), MirrorMissing},
		{"another node's", static("", "1"), mirror("", "1", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), MirrorStale},
		{"ownerless", static("", "1"), mirror("", "1", func(p *corev1.Pod) { p.OwnerReferences = nil }), MirrorStale},
		{"succeeded", static("", "1"), mirror("", "1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), MirrorStale},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Evaluate(testNode(), Expected{Pods: []StaticPod{test.want}}, []*corev1.Pod{test.mirror})
			if got.Reason != test.reason {
				t.Errorf("got %s (%s), want %s", got.Reason, got.Message, test.reason)
			}
			if waiting := got.Reason != AllMirrored; waiting != (len(got.WaitingFor) == 1) {
				t.Errorf("waiting for %v", got.WaitingFor)
			}
		})
	}
}

// Which reason wins, and that whether the Node is Ready plays no part.
func TestReasons(t *testing.T) {
	registered := func(n *corev1.Node) { n.Labels = map[string]string{nodePoolLabel: "p", registeredLabel: "true"} }
	unregistered := func(n *corev1.Node) { n.Labels = map[string]string{nodePoolLabel: "p"} }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: unregisteredTaint, Effect: corev1.TaintEffectNoExecute}}
	}
	none, one := Expected{}, Expected{Pods: []StaticPod{static("", "1")}}
	for _, test := range []struct {
		name     string
		node     func(*corev1.Node)
		expected Expected
		status   corev1.ConditionStatus
		reason   string
	}{
		{"nothing known", unregistered, Expected{Unknown: "x"}, corev1.ConditionUnknown, KubeletNotReady},
		{"missing before unregistered", unregistered, one, corev1.ConditionFalse, MirrorMissing},
		{"unregistered with none expected", unregistered, none, corev1.ConditionFalse, AwaitingRegistration},
		{"unregistered by taint alone", tainted, none, corev1.ConditionFalse, AwaitingRegistration},
		{"registered", registered, none, corev1.ConditionTrue, NoStaticPods},
	} {
		node := testNode()
		test.node(node)
		if got := Evaluate(node, test.expected, nil); got.Status != test.status || got.Reason != test.reason || got.Message == "" {
			t.Errorf("%s: got %s %s %q", test.name, got.Status, got.Reason, got.Message)
		}
	}
}

// A message stays within what the API takes.
func TestMessageIsBounded(t *testing.T) {
	var many Expected
	for range 200 {
		pod := static("", "1")
		pod.Name = strings.Repeat("ä", 100) + string(rune('a'+len(many.Pods)%26)) + strings.Repeat("b", len(many.Pods))
		many.Pods = append(many.Pods, pod)
	}
	if got := Evaluate(testNode(), many, nil); len(got.Message) > maxMessage || !strings.HasSuffix(got.Message, "…") || len(got.WaitingFor) != 200 {
		t.Errorf("message of %d bytes, waiting for %d", len(got.Message), len(got.WaitingFor))
	}
	forged := testNode()
	forged.Annotations = map[string]string{StaticPodsAnnotation: `{"observed":"` + strings.Repeat("x", 200_000) + `"}`}
	if got := Evaluate(forged, Published(forged), nil); len(got.Message) > maxUnknown {
		t.Errorf("what a forged annotation makes has %d bytes", len(got.Message))
	}
}

// The annotation says what the set does; what is malformed or of another boot is no set.
func TestAnnotation(t *testing.T) {
	set := Expected{
		Source: "PodsAPI", BootID: "b1", Observed: time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC),
		Pods: []StaticPod{static("f00", "1500m")}, Ignored: []IgnoredFile{{"x.yaml", "no name"}},
	}
	value, err := set.Encode("agent-1")
	if err != nil {
		t.Fatal(err)
	}
	got, agent, err := Decode(value)
	if err != nil || agent != "agent-1" || !got.Same(&set) || !got.Observed.Equal(set.Observed) {
		t.Errorf("%s became %+v by %s: %v", value, got, agent, err)
	}
	for name, test := range map[string]struct {
		value, boot string
		known       bool
	}{
		"good":            {value, "b1", true},
		"of another boot": {value, "b2", false},
		"no JSON":         {"{", "b1", false},
		"forged quantity": {strings.Replace(value, "1500m", "many", 1), "b1", false},
		"no time":         {`{"bootID":"b1"}`, "b1", false},
		// Parsing the first or comparing the second would take hours.
		"a tiny quantity": {strings.Replace(value, "1500m", "1e-1000000000", 1), "b1", false},
		"a huge quantity": {strings.Replace(value, "1500m", "1e1000000000", 1), "b1", false},
	} {
		node := testNode()
		node.Annotations = map[string]string{StaticPodsAnnotation: test.value}
		node.Status.NodeInfo.BootID = test.boot
		if got := Published(node); (got.Unknown == "") != test.known {
			t.Errorf("%s: unknown %q", name, got.Unknown)
		}
	}
	if got := Published(testNode()); got.Unknown == "" {
		t.Error("a Node without the annotation has a set")
	}
	for range 100 {
		set.Ignored = append(set.Ignored, IgnoredFile{"y.yaml", strings.Repeat("é", 1000)})
	}
	if value, err := set.Encode(""); err != nil || len(value) > 10<<10 {
		t.Errorf("ignored files make %d bytes: %v", len(value), err)
	}
	for range 2000 {
		set.Pods = append(set.Pods, static("f00", "1"))
	}
	if _, err := set.Encode(""); err == nil {
		t.Error("a set too large for an annotation is no error")
	}
}

// The transition time changes with the status only, and what does not change is not written.
func TestCondition(t *testing.T) {
	node := testNode()
	at := time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	r := Result{Status: corev1.ConditionFalse, Reason: MirrorMissing, Message: "a"}
	step := func(r Result, now time.Time, differs bool, transition time.Time) {
		t.Helper()
		c, changed := r.Condition(node, DefaultCondition, now)
		if changed != differs || !c.LastTransitionTime.Time.Equal(transition) {
			t.Errorf("%s %s: changed %t, transition %s", r.Status, r.Message, changed, c.LastTransitionTime)
		}
		node.Status.Conditions = []corev1.NodeCondition{c}
	}
	step(r, at, true, at)
	step(r, at.Add(time.Second), false, at)
	r.Message = "b"
	step(r, at.Add(2*time.Second), true, at)
	r.Status = corev1.ConditionTrue
	step(r, at.Add(3*time.Second), true, at.Add(3*time.Second))
	// Somebody wrote the condition without times.
	node.Status.Conditions[0].LastTransitionTime = metav1.Time{}
	step(r, at.Add(4*time.Second), true, at.Add(4*time.Second))
	step(r, at.Add(5*time.Second), false, at.Add(4*time.Second))
}

// All mirrors must have stood for the time; another mirror in place of one begins it anew; other reasons do not wait.
func TestSettling(t *testing.T) {
	var s Settling
	at := time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	mirrored := func(mirrors string) Result { return Result{Reason: AllMirrored, Mirrors: mirrors} }
	for _, step := range []struct {
		after  time.Duration
		result Result
		wait   time.Duration
	}{
		{0, Result{Reason: MirrorMissing}, 0},
		{time.Second, mirrored("a=1"), time.Second},
		{1500 * time.Millisecond, mirrored("a=1"), 500 * time.Millisecond},
		{1600 * time.Millisecond, mirrored("a=2"), time.Second},
		{2600 * time.Millisecond, mirrored("a=2"), 0},
		{2700 * time.Millisecond, Result{Reason: MirrorStale}, 0},
		{2800 * time.Millisecond, mirrored("a=2"), time.Second},
		{2900 * time.Millisecond, Result{Reason: NoStaticPods}, 0},
	} {
		if wait := s.Wait(step.result, time.Second, at.Add(step.after)); wait != step.wait {
			t.Errorf("after %s: wait %s, want %s", step.after, wait, step.wait)
		}
	}
}
