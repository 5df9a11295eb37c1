package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/agent"
)

// rule is what matters of a NodeReadinessRule; its types are no Go module.
type rule struct {
	APIVersion string
	Metadata   struct{ Name string }
	Spec       struct {
		Conditions      []struct{ Type, RequiredStatus string }
		Taint           corev1.Taint
		EnforcementMode string
		NodeSelector    metav1.LabelSelector
	}
}

func readRule(t *testing.T) rule {
	t.Helper()
	data, err := os.ReadFile("../../deploy/readiness-rule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r rule
	if err := yaml.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// satisfied tells what the Node Readiness Controller would: every condition of the rule has its required status.
func (r rule) satisfied(node *corev1.Node) bool {
	for _, want := range r.Spec.Conditions {
		got := readiness.ConditionOf(node, want.Type)
		if got == nil || string(got.Status) != want.RequiredStatus {
			return false
		}
	}
	return true
}

// taints tells whether the node bears the rule's taint; like the controller it does not look at the value.
func (r rule) taints(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == r.Spec.Taint.Key && taint.Effect == r.Spec.Taint.Effect {
			return true
		}
	}
	return false
}

// A node that registers with the rule's taint is held while a static pod is not mirrored and satisfies the rule once it is;
// Settle passes before that, and the transition time is real.
func TestStandaloneSatisfiesTheRule(t *testing.T) {
	r := readRule(t)
	if r.APIVersion != "readiness.node.x-k8s.io/v1alpha1" || r.Metadata.Name != "static-pods-mirrored" || r.Spec.EnforcementMode != "bootstrap-only" {
		t.Errorf("the rule is %+v", r)
	}
	if len(r.Spec.Conditions) != 1 || r.Spec.Conditions[0].Type != readiness.DefaultCondition || r.Spec.Taint.Key != readiness.TaintKey {
		t.Fatalf("the rule is about %+v and %+v", r.Spec.Conditions, r.Spec.Taint)
	}
	if len(r.Spec.NodeSelector.MatchLabels) == 0 {
		t.Error("the controller's webhook refuses an empty node selector")
	}
	l := newLab(t, livecluster.Node{Name: "held", Taints: []string{r.Spec.Taint.Key + "=" + r.Spec.Taint.Value + ":" + string(r.Spec.Taint.Effect)}})
	l.manifest("proxy", "kube-system", "100m")
	l.manifest("late", "held-late", "100m")
	l.agent("--standalone")
	before := l.condition(corev1.ConditionFalse, readiness.MirrorMissing)
	if !strings.Contains(before.Message, "held-late/late-held") || strings.Contains(before.Message, "proxy-held") {
		t.Errorf("the message is %q", before.Message)
	}
	node := l.node()
	if r.satisfied(node) || !r.taints(node) || node.Labels["kubernetes.io/os"] != r.Spec.NodeSelector.MatchLabels["kubernetes.io/os"] {
		t.Errorf("the rule: satisfied %t, taint %t, labels %v", r.satisfied(node), r.taints(node), node.Labels)
	}
	l.namespace("held-late")
	after := l.condition(corev1.ConditionTrue, readiness.AllMirrored)
	if !r.satisfied(l.node()) {
		t.Error("the rule is not satisfied")
	}
	mirror, err := l.client.CoreV1().Pods("held-late").Get(t.Context(), "late-held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	settled := after.LastTransitionTime.Sub(mirror.CreationTimestamp.Time)
	t.Logf("True %s after the last mirror was made (whole seconds)", settled)
	if settled < 0 || !before.LastTransitionTime.Before(&after.LastTransitionTime) {
		t.Errorf("transitions at %s and %s, mirror made at %s", before.LastTransitionTime, after.LastTransitionTime, mirror.CreationTimestamp)
	}
}

// A node without static pods is released at once; one of Karpenter's is not before it is registered.
func TestStandaloneRegistration(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "karpenters", Labels: map[string]string{"karpenter.sh/nodepool": "default"}})
	l.agent("--standalone", "--held-warning=1s")
	l.condition(corev1.ConditionFalse, readiness.AwaitingRegistration)
	// It registered without the taint: nothing held it, and that is said too.
	eventually(t, "an Event says that nothing held the node", func() (bool, string) {
		events, err := l.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=karpenters,reason=" + agent.NoReadinessTaint})
		return err == nil && len(events.Items) == 1 && strings.Contains(events.Items[0].Message, readiness.TaintKey), fmt.Sprint(err)
	})
	// Somebody gives it the taint: now it is held.
	l.patch(`{"spec":{"taints":[{"key":"` + readiness.TaintKey + `","effect":"NoSchedule"}]}}`)
	eventually(t, "an Event says that the node is held", func() (bool, string) {
		events, err := l.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=karpenters,reason=StaticPodsNotMirrored"})
		return err == nil && len(events.Items) == 1 && strings.Contains(events.Items[0].Message, readiness.AwaitingRegistration), fmt.Sprint(err)
	})
	l.patch(`{"metadata":{"labels":{"karpenter.sh/registered":"true"}}}`)
	l.condition(corev1.ConditionTrue, readiness.NoStaticPods)
	// A condition that somebody takes away comes back.
	l.patch(`{"status":{"conditions":[{"$patch":"delete","type":"`+readiness.DefaultCondition+`"}]}}`, "status")
	l.condition(corev1.ConditionTrue, readiness.NoStaticPods)
}

func (l *lab) patch(patch string, subresources ...string) {
	l.t.Helper()
	_, err := l.client.CoreV1().Nodes().Patch(l.t.Context(), l.spec.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"}, subresources...)
	if err != nil {
		l.t.Fatal(err)
	}
}

// A forged annotation is overwritten and said, two agents with different views say so, and where nothing may be read or
// written the agent says what it needs.
func TestBadNeighbours(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "neighbours"})
	l.manifest("proxy", "kube-system", "100m")
	a := l.agent("--identity=one")
	honest := l.published("kube-system/proxy-neighbours=100m")
	forged := honest
	forged.Pods = nil
	value, err := forged.Encode("one")
	if err != nil {
		t.Fatal(err)
	}
	l.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, readiness.StaticPodsAnnotation, value))
	l.published("kube-system/proxy-neighbours=100m")
	a.says("was written by somebody, not by rollcall-agent")
	eventually(t, "an Event says so", func() (bool, string) {
		events, err := l.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=neighbours,reason=StaticPodsOverwritten"})
		return err == nil && len(events.Items) > 0, fmt.Sprint(err)
	})

	empty := t.TempDir()
	second := l.agent("--identity=two", "--pods-api-socket=", "--manifests", empty)
	a.says("another rollcall-agent (two)")
	second.end()
	l.published("kube-system/proxy-neighbours=100m")

	nobody := l.kubeconfig(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) { user.Impersonate = "nobody" })
	powerless := l.agent("--kubeconfig", nobody)
	powerless.says("the agent needs to list and watch nodes")
}

// SIGTERM ends the agent well and leaves what it published; a full disk under its log does not stop it; it is small,
// static, and carries neither Karpenter's code nor a terminal's.
func TestTheProgram(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "program"})
	l.manifest("proxy", "kube-system", "100m")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	a := l.agentTo(full, "--standalone")
	l.condition(corev1.ConditionTrue, readiness.AllMirrored)
	memory := rssAnon(t, a.cmd.Process.Pid)
	t.Logf("RssAnon at rest %d KiB", memory)
	if memory > 20<<10 {
		t.Errorf("RssAnon is %d KiB, more than 20 MiB", memory)
	}
	if status := a.end(); status != exitOK {
		t.Errorf("SIGTERM: exit status %d", status)
	}
	l.published("kube-system/proxy-program=100m")

	image, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if libraries, err := image.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the binary is not static: %v %v", libraries, err)
	}
}

// rssAnon returns the process's anonymous memory in KiB.
func rssAnon(t testing.TB, pid int) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib
		}
	}
	t.Fatalf("no RssAnon in %s", data)
	return 0
}

func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		for _, foreign := range []string{"karpenter", "charmbracelet", "controller-runtime", "k8s.io/client-go/kubernetes"} {
			if strings.Contains(pkg, foreign) {
				t.Errorf("the agent carries %s", pkg)
			}
		}
	}
}

// A mistake on the command line is told in a sentence, with exit status 2.
func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--node-name="}, "which node?"},
		{[]string{"--node-name=N1"}, "lower-case"},
		{[]string{"--node-name=n1", "--pods-api-socket=", "--manifests="}, "no source is left"},
		{[]string{"--node-name=n1", "--api-server=http://x"}, "no https URL"},
		{[]string{"--node-name=n1", "--kubelet-pods-url=http://x/pods"}, "over https only"},
		{[]string{"--node-name=n1", "--kubelet-pods-url=https://x/api/v1/nodes/n1/proxy/pods"}, "nodes/proxy"},
		{[]string{"--node-name=n1", "--settle=-1s"}, "negative"},
		{[]string{"--node-name=n1", "--nonsense"}, "unknown flag"},
		{[]string{"--node-name=n1", "now"}, "unexpected argument"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), test.args, &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%v: exit %d, %q; want %d and %q", test.args, status, stderr.String(), exitUsage, test.says)
		}
	}
	for _, flag := range []string{"--help", "--version"} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), []string{flag}, &stdout, &stderr); status != exitOK || stdout.Len() == 0 {
			t.Errorf("%s: exit %d, %q", flag, status, stdout.String())
		}
	}
}
