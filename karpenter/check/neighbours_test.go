package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/inventory"
)

const (
	neighboursDir = "testdata/neighbours"
	verdictsPage  = "../../docs/verdicts.md"
)

// A neighbourCase is a case of testdata/neighbours with its objects. Its want.json is checked through the built program
// beside those of testdata/fate; here only what it says beyond that is read.
type neighbourCase struct {
	name string

	About string    `json:"about"`
	From  string    `json:"from"`
	Rules []string  `json:"rules"`
	Now   time.Time `json:"now"`
	// Beside has, by namespace/name, what cluster-autoscaler answers, written by hand (facts/disruption.md section 2), and
	// why rollcall's answer is another.
	Beside map[string]struct {
		ClusterAutoscaler string `json:"clusterAutoscaler"`
		Why               string `json:"why"`
	} `json:"beside"`

	file       string
	pods       []*corev1.Pod
	daemonSets []runtime.Object
	claims     map[string]*karpv1.NodeClaim // by the Node's name
}

// predicate is the one of Karpenter's predicates that the case is about; empty where it is about none.
func (c *neighbourCase) predicate() string {
	for _, rule := range c.Rules {
		if name, ok := strings.CutPrefix(rule, "Karpenter "); ok {
			return name
		}
	}
	return ""
}

func neighbourCases(t *testing.T) []*neighbourCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(neighboursDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", neighboursDir, err)
	}
	cases := make([]*neighbourCase, 0, len(files))
	for _, file := range files {
		c := &neighbourCase{file: file, name: strings.TrimSuffix(filepath.Base(file), ".yaml"), claims: map[string]*karpv1.NodeClaim{}}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want.json")
		if err == nil {
			err = json.Unmarshal(want, c)
		}
		if err == nil {
			err = c.read()
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		cases = append(cases, c)
	}
	return cases
}

// read takes from the YAML what the neighbours look at, without rollcall's own reading of it.
func (c *neighbourCase) read() error {
	raw, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		var document unstructured.Unstructured
		if err := decoder.Decode(&document.Object); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if !document.IsList() {
			err = c.take(&document)
		} else {
			err = document.EachListItem(func(item runtime.Object) error { return c.take(item.(*unstructured.Unstructured)) })
		}
		if err != nil {
			return err
		}
	}
}

func (c *neighbourCase) take(object *unstructured.Unstructured) error {
	into := func(typed any) error {
		return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
	}
	switch object.GroupVersionKind().GroupKind().String() {
	case "Pod":
		pod := &corev1.Pod{}
		c.pods = append(c.pods, pod)
		return into(pod)
	case "DaemonSet.apps":
		set := &appsv1.DaemonSet{}
		c.daemonSets = append(c.daemonSets, set)
		return into(set)
	case "NodeClaim.karpenter.sh":
		claim := &karpv1.NodeClaim{}
		err := into(claim)
		c.claims[claim.Status.NodeName] = claim
		return err
	}
	return nil
}

// answers are rollcall's, by namespace/name.
func (c *neighbourCase) answers(t *testing.T) map[string]Pod {
	t.Helper()
	inv, err := inventory.Load([]string{c.file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]Pod{}
	for _, node := range Ask(inv, Question{Config: karpenter.DefaultConfig(), Now: c.Now, Nodes: inv.Nodes()}).Nodes {
		for _, pod := range node.Pods {
			answers[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	return answers
}

// autoscalerAnswers are all that cluster-autoscaler can say with its defaults; it never says MinReplicasReached then.
var autoscalerAnswers = []string{
	"skip: Mirror", "skip: LongTerminating",
	"drain: DaemonSet", "drain: SafeToEvict", "drain: Terminal", "wait: OnCompletion",
	"block: ControllerNotFound", "block: NotReplicated", "block: UnmovableKubeSystemPod", "block: NotSafeToEvictAnnotation",
	"block: LocalStorageRequested", "block: NotEnoughPdb", "block: NoPlaceToMovePods",
	"move",
}

// The cases show every filter of kubectl drain, every answer of cluster-autoscaler, and both sides of every predicate of
// Karpenter.
func TestNeighboursAreCovered(t *testing.T) {
	missing := map[string]bool{"kubectl skips": true, "kubectl evicts": true, "kubectl evicts, warns": true}
	for _, m := range drainMessages {
		missing["kubectl refuses ("+m.name+")"] = true
	}
	for _, answer := range autoscalerAnswers {
		missing["cluster-autoscaler "+answer] = true
	}
	for name := range viewAt(noon, nil).predicates() {
		missing["Karpenter "+name+": yes"], missing["Karpenter "+name+": no"] = true, true
	}
	for _, c := range neighbourCases(t) {
		for _, pod := range c.pods {
			beside := c.Beside[pod.Namespace+"/"+pod.Name]
			if a := beside.ClusterAutoscaler; a != "" && !slices.Contains(autoscalerAnswers, a) {
				t.Errorf("%s: %s: cluster-autoscaler has no answer %q", c.name, pod.Name, a)
			}
			delete(missing, "cluster-autoscaler "+beside.ClusterAutoscaler)
			delete(missing, "Karpenter "+c.predicateOf(pod))
			if pod.Spec.NodeName == "" || !strings.HasPrefix(c.name, "k") {
				continue
			}
			for answer := range strings.SplitSeq(kubectlSays(t, pod, c.daemonSets, c.Now), "; forced: ") {
				delete(missing, "kubectl "+answer)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("no case shows %s", what)
	}
}

// predicateOf is what the case's predicate says of the pod.
func (c *neighbourCase) predicateOf(pod *corev1.Pod) string {
	name := c.predicate()
	holds := viewAt(c.Now, c.claims[pod.Spec.NodeName]).predicates()[name]
	if holds == nil {
		return ""
	}
	if holds(pod) {
		return name + ": yes"
	}
	return name + ": no"
}

// The tables of docs/verdicts.md are what rollcall and the neighbours answer; go test ./karpenter/check -update writes
// them anew. cluster-autoscaler's column is the cases' own.
func TestVerdictsPage(t *testing.T) {
	page, err := os.ReadFile(verdictsPage)
	if err != nil {
		t.Fatal(err)
	}
	cases := neighbourCases(t)
	text := string(page)
	for _, table := range []struct{ mark, prefix string }{{"kubectl", "k"}, {"cluster-autoscaler", "a"}, {"karpenter", "p"}} {
		text = replaceBlock(t, text, table.mark, neighbourTable(t, cases, table.prefix))
	}
	text = replaceBlock(t, text, "reports", reportTable(t, cases))
	if *update {
		if err := os.WriteFile(verdictsPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(string(page), "\n"), strings.Split(text, "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("docs/verdicts.md, line %d, is not what the programs answer; go test ./karpenter/check -update writes it anew", i+1)
		}
	}
}

// replaceBlock puts the table between its two marks.
func replaceBlock(t *testing.T, page, mark, table string) string {
	t.Helper()
	begin, end := "<!-- begin "+mark+" -->\n", "<!-- end "+mark+" -->"
	before, rest, opened := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("docs/verdicts.md has no %q … %q", strings.TrimSpace(begin), end)
	}
	return before + begin + table + end + after
}

// neighbourTable has a row for each pod of the cases whose names begin with the prefix.
func neighbourTable(t *testing.T, cases []*neighbourCase, prefix string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| case | pod | rollcall | kubectl drain | Karpenter | cluster-autoscaler | why |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, c := range cases {
		if !strings.HasPrefix(c.name, prefix) {
			continue
		}
		answers, label := c.answers(t), caseLink(c)
		for _, pod := range c.pods {
			name := pod.Namespace + "/" + pod.Name
			ours, kubectl, karp := "on no node", "–", "–"
			if answer, asked := answers[name]; asked {
				ours = brief(answer)
				kubectl = kubectlSays(t, pod, c.daemonSets, c.Now)
				karp = viewAt(c.Now, c.claims[pod.Spec.NodeName]).says(pod)
			}
			if predicate := c.predicateOf(pod); predicate != "" {
				karp = strings.TrimSuffix(predicate+"; "+karp, "; –")
			}
			beside := c.Beside[name]
			autoscaler := beside.ClusterAutoscaler
			if autoscaler == "" {
				autoscaler = "–"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", label, pod.Name, ours, kubectl, karp, autoscaler, beside.Why)
			label = ""
		}
	}
	return b.String()
}

// reportTable has a row for each public report.
func reportTable(t *testing.T, cases []*neighbourCase) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| case | report | what is right | pods |\n| --- | --- | --- | --- |\n")
	for _, c := range cases {
		if !strings.HasPrefix(c.name, "r") {
			continue
		}
		answers := c.answers(t)
		counts := map[string]int{}
		for _, answer := range answers {
			counts[string(answer.Verdict)+" "+string(answer.Reason)]++
		}
		var pods []string
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			pods = append(pods, fmt.Sprintf("%d %s", counts[what], what))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", caseLink(c), c.From, c.About, strings.Join(pods, ", "))
	}
	return b.String()
}

func caseLink(c *neighbourCase) string {
	number, rest, _ := strings.Cut(c.name, "-")
	return fmt.Sprintf("[%s](../karpenter/check/%s) %s", number, filepath.ToSlash(c.file), rest)
}

func brief(p Pod) string {
	text := string(p.Verdict) + " " + string(p.Reason)
	if p.Certainty != "Certain" {
		text += " (assumed)"
	}
	for _, flag := range p.Flags {
		text += ", " + string(flag)
	}
	return text
}
