package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	requests "k8s.io/component-helpers/resource"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

const (
	nodeYAML = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
	podYAML  = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {nodeName: n1}\n"
	nodeJSON = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`
	podJSON1 = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"nodeName":"n1"}}`
	bareNode = `{"metadata":{"name":"n1"}}`
	barePod  = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"nodeName":"n1"}}`
)

func load(input string) (*Inventory, error) {
	return Load([]string{Stdin}, onlyReader{strings.NewReader(input)})
}

// Each spelling holds the same node n1 with the same pod shop/web.
func TestLoadReadsAnySpelling(t *testing.T) {
	indent := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	for name, input := range map[string]string{
		"documents":                  nodeYAML + "---\n" + podYAML,
		"markers and comments":       "# of my cluster\n---\n" + nodeYAML + "...\n\n--- # pods\n# one\n" + podYAML + "---\n---\n# end",
		"indented document":          "\n  apiVersion: v1\n  kind: Node\n  metadata: {name: n1}\n---\n" + podYAML,
		"byte order mark, CRLF":      "\ufeff" + strings.ReplaceAll(nodeYAML+"---\n"+podYAML, "\n", "\r\n"),
		"YAML List":                  "apiVersion: v1\nitems:\n" + indent(nodeYAML) + indent(podYAML) + "kind: List\n",
		"YAML List in a List":        "kind: List\napiVersion: v1\nitems:\n" + indent("kind: List\napiVersion: v1\nitems:\n"+indent(nodeYAML)) + indent(podYAML),
		"YAML sequence":              indent(nodeYAML) + indent(podYAML),
		"flow style":                 "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n{\"apiVersion\": v1, kind: Pod,\n metadata: {name: web, namespace: shop}, spec: {nodeName: n1}}",
		"JSON, concatenated":         nodeJSON + podJSON1,
		"JSON, one a line":           nodeJSON + "\n" + podJSON1 + "\n",
		"JSON and YAML":              "# JSON first\n" + nodeJSON + "\n---\n" + podYAML,
		"YAML and JSON":              nodeYAML + "---\n" + podJSON1,
		"JSON List":                  `{"apiVersion":"v1","items":[` + nodeJSON + "," + podJSON1 + `],"kind":"List","metadata":{}}`,
		"JSON array":                 "[" + nodeJSON + "," + podJSON1 + "]",
		"JSON List in a List":        `{"kind":"List","apiVersion":"v1","items":[{"kind":"List","apiVersion":"v1","items":[` + nodeJSON + `]},` + podJSON1 + `]}`,
		"typed Lists as the API has": `{"kind":"NodeList","apiVersion":"v1","items":[` + bareNode + `]}{"kind":"PodList","apiVersion":"v1","items":[` + barePod + `]}`,
		"typed Lists sorted by name": `{"apiVersion":"v1","items":[` + bareNode + `],"kind":"NodeList"}{"apiVersion":"v1","items":[` + barePod + `],"kind":"PodList"}`,
		"kinds of no use":            nodeYAML + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\napiVersion: v1\nkind: Event\n---\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n---\n" + podYAML,
		"namesakes elsewhere":        nodeYAML + "---\napiVersion: longhorn.io/v1beta2\nkind: Node\nmetadata: {name: n1}\n---\n" + podYAML,
		"a List of nothing":          "apiVersion: v1\nitems: []\nkind: List\n---\n" + nodeYAML + "---\n" + podYAML,
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := load(input)
			if err != nil {
				t.Fatal(err)
			}
			if len(inv.Nodes()) != 1 || inv.Node("n1") == nil {
				t.Errorf("nodes = %v, want n1", inv.Nodes())
			}
			pods := inv.PodsOn("n1")
			if len(pods) != 1 || pods[0].Namespace != "shop" || pods[0].Name != "web" {
				t.Errorf("pods = %v, want shop/web", pods)
			}
		})
	}
}

// A YAML List above splitAbove is taken apart by lines: same answer as the parser's for the same items in small.
func TestLoadSplitsALargeYAMLList(t *testing.T) {
	const n = 1100
	whole := podListYAML(t, n)
	if len(whole) < 2*splitAbove {
		t.Fatalf("the list has %d bytes, too few to be split", len(whole))
	}
	indented := bytes.ReplaceAll(whole, []byte("\n  "), []byte("\n    "))
	indented = bytes.ReplaceAll(indented, []byte("\n- "), []byte("\n    # the next\n\n  - "))
	kindless := bytes.ReplaceAll(whole, []byte("- apiVersion: v1\n  kind: Pod\n"), []byte("- x: 1\n"))
	kindless = bytes.ReplaceAll(kindless, []byte("kind: List"), []byte("kind: PodList"))
	for name, input := range map[string][]byte{"kubectl": whole, "indented": indented, "kindless": kindless} {
		t.Run(name, func(t *testing.T) {
			inv, err := Load([]string{Stdin}, bytes.NewReader(input))
			if err != nil {
				t.Fatal(err)
			}
			pods := 0
			for i := range 200 {
				for _, pod := range inv.PodsOn(fmt.Sprintf("node-%d", i)) {
					pods++
					if pod.Status.StartTime == nil || len(pod.Spec.Containers) != 1 || len(pod.Spec.Tolerations) != 2 {
						t.Fatalf("pod %s was read in part: %+v", pod.Name, pod)
					}
				}
			}
			if pods != n {
				t.Errorf("%d pods, want %d", pods, n)
			}
		})
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	big := string(podListYAML(t, 900))
	for name, tc := range map[string]struct{ input, want string }{
		"empty":                 {"", "standard input: there is no Kubernetes object in it"},
		"only comments":         {"# nothing\n---\n---\n", "there is no Kubernetes object in it"},
		"not YAML":              {nodeYAML + "---\nx: 1\na:\n\tb: c\n", "document 2 (line 5): this is no YAML: line 7: found character"},
		"text":                  {"hello world", "document 1: this is no Kubernetes object"},
		"no object":             {"replicas: 3\nimage: web\n", "document 1: this is no Kubernetes object: it has neither apiVersion nor kind"},
		"no kind":               {"apiVersion: v1\nmetadata: {name: x}\n", `has apiVersion "v1" but no kind`},
		"no apiVersion":         {"kind: Pod\nmetadata: {name: x}\n", "this Pod has no apiVersion"},
		"malformed apiVersion":  {"kind: Pod\napiVersion: a/b/c\nmetadata: {name: x}\n", `malformed apiVersion "a/b/c"`},
		"unknown version":       {"kind: Pod\napiVersion: v2\nmetadata: {name: x}\n", `Pod has apiVersion "v2"; rollcall reads it as v1`},
		"wrong group":           {"kind: ReplicaSet\napiVersion: extensions/v1beta1\nmetadata: {name: x}\n", "reads it as apps/v1"},
		"no name":               {nodeJSON + `{"apiVersion":"v1","kind":"Pod"}`, "document 2: this Pod has no metadata.name"},
		"generated name":        {"apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n", "this Pod has no metadata.name"},
		"wrong type":            {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: 3}\n", "this Pod cannot be read: json: cannot unmarshal number"},
		"bad quantity":          {"apiVersion: v1\nkind: Node\nmetadata: {name: x}\nstatus: {allocatable: {cpu: lots}}\n", "this Node cannot be read: quantities must match"},
		"twice":                 {nodeYAML + "---\n" + podYAML + "---\n" + podYAML, "document 3 (line 10): Pod shop/web stands in the input twice, first in standard input, document 2 (line 5)"},
		"twice in a List":       {`{"apiVersion":"v1","kind":"List","items":[` + podJSON1 + "," + podJSON1 + `]}`, "document 1, item 2: Pod shop/web stands in the input twice, first in standard input, document 1, item 1"},
		"truncated":             {`{"apiVersion":"v1","kind":"List","items":[` + nodeJSON + `,{"apiVersion":"v1","ki`, "document 1, item 2: the JSON breaks off"},
		"truncated at once":     {`{"apiVersion":"v1","kind":"Li`, "document 1: the JSON breaks off"},
		"comma too many":        {"[" + nodeJSON + ",]", "a comma too many"},
		"comma missing":         {"[" + nodeJSON + nodeJSON + "]", "where a comma or ] belongs"},
		"broken inside":         {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x" "y"}}`, "the JSON of this Pod is broken"},
		"number in a List":      {`{"apiVersion":"v1","kind":"List","items":[7]}`, "item 1: this is no Kubernetes object"},
		"UTF-16":                {"\xff\xfea\x00", "this is UTF-16"},
		"binary":                {"\x00\x01\x02", "document 1: this is no YAML"},
		"Lists without end":     {strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 40), "Lists stand in Lists"},
		"large and broken":      {big + "oops", "this is no YAML"},
		"large and twice":       {big + "---\n" + big, "stands in the input twice"},
		"too large":             {nodeYAML + "data: |\n" + strings.Repeat("  0123456789\n", maxObject/12), "this is larger than 8 MiB"},
		"too large in one line": {`{"apiVersion":"v1","kind":"Node","x":"` + strings.Repeat("0", maxObject+1), "this is larger than 8 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(tc.input)
			var input *InputError
			if !errors.As(err, &input) {
				t.Fatalf("err = %v, want an InputError", err)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %q\nwant  %q in it", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the message has several lines: %q", err)
			}
		})
	}
}

// Objects of an older Karpenter do not cost the answer: what a NodeClaim says is read, a NodePool is left out.
func TestLoadOldKarpenter(t *testing.T) {
	inv, err := load(nodeJSON + `
{"apiVersion":"karpenter.sh/v1beta1","kind":"NodeClaim","metadata":{"name":"c","deletionTimestamp":"2026-12-01T12:00:00Z","annotations":{"a":"b"}},
"spec":{"nodeClassRef":{"apiVersion":"karpenter.k8s.aws/v1beta1"},"resources":7},"status":{"nodeName":"n1","conditions":"x"}}
{"apiVersion":"karpenter.sh/v1beta1","kind":"NodePool","metadata":{"name":"p"},"spec":{"disruption":{"consolidateAfter":7}}}
{"apiVersion":"karpenter.sh/v1beta1","kind":"NodePool","metadata":{"name":"q"}}
{"apiVersion":"karpenter.sh/v1alpha5","kind":"Provisioner","metadata":{"name":"r"}}`)
	if err != nil {
		t.Fatal(err)
	}
	claim := inv.NodeClaim(inv.Node("n1"))
	if claim == nil || claim.DeletionTimestamp == nil || claim.Annotations["a"] != "b" {
		t.Errorf("the NodeClaim of n1 is %v", claim)
	}
	if len(inv.NodePools()) != 0 {
		t.Errorf("NodePools %v", inv.NodePools())
	}
	if len(inv.Notices()) != 1 || !strings.Contains(inv.Notices()[0], "NodePools of karpenter.sh/v1beta1 are left out") {
		t.Errorf("notices %q", inv.Notices())
	}
}

// What a manifest leaves out is what the API server would make of it.
func TestLoadDefaultsRequests(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"limits alone":          {`"containers":[{"limits":{"cpu":"1","memory":"1Gi"}}]`, "1 1Gi"},
		"a request beside them": {`"containers":[{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"1"}}]`, "1 1Gi"},
		"a request of zero":     {`"containers":[{"limits":{"cpu":"2"},"requests":{"cpu":"0"}}]`, "0 0"},
		"no limits":             {`"containers":[{"requests":{"cpu":"1"}}]`, "1 0"},
		"an init container":     {`"containers":[{"limits":{"cpu":"1"}}],"initContainers":[{"limits":{"cpu":"3"}}]`, "3 0"},
		"the pod as a whole":    {`"containers":[{}],"resources":{"limits":{"cpu":"4"}}`, "4 0"},
		"the pod, and what its containers ask for": {
			`"containers":[{"requests":{"cpu":"1"}}],"resources":{"limits":{"cpu":"4","memory":"1Gi"}}`, "1 1Gi"},
		"the pod, and its request": {
			`"containers":[{}],"resources":{"limits":{"cpu":"4"},"requests":{"cpu":"2"}}`, "2 0"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := strings.NewReplacer(`[{"limits"`, `[{"resources":{"limits"`, `[{"requests"`, `[{"resources":{"requests"`, `}}]`, `}}}]`).Replace(tc.spec)
			inv, err := load(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n1",` + spec + `}}`)
			if err != nil {
				t.Fatal(err)
			}
			all := requests.PodRequests(inv.PodsOn("n1")[0], requests.PodResourcesOptions{})
			if got := all.Cpu().String() + " " + all.Memory().String(); got != tc.want {
				t.Errorf("requests %s, want %s", got, tc.want)
			}
		})
	}
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nodes, pods, empty := write("nodes.yaml", nodeYAML), write("pods.json", podJSON1), write("empty.yaml", "")

	if inv, err := Load([]string{nodes, pods}, nil); err != nil || len(inv.PodsOn("n1")) != 1 {
		t.Errorf("Load of two files: %v", err)
	}
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"directory":    {[]string{nodes, dir}, dir + ": this is a directory"},
		"missing":      {[]string{dir + "/none"}, dir + "/none: no such file"},
		"empty":        {[]string{nodes, empty}, empty + ": there is no Kubernetes object"},
		"twice":        {[]string{nodes, nodes}, nodes + ": this file is given twice"},
		"same objects": {[]string{nodes, write("again.yaml", nodeYAML)}, "again.yaml, document 1: Node n1 stands in the input twice, first in " + nodes},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(tc.files, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v\nwant  %s", err, tc.want)
			}
		})
	}
}

type brokenReader struct{ r io.Reader }

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("the line went dead")
	}
	return n, err
}

func TestLoadPassesOnReadErrors(t *testing.T) {
	for _, input := range []string{"", nodeYAML, `{"apiVersion":"v1"`, "# comment", "[" + nodeJSON} {
		_, err := Load([]string{Stdin}, brokenReader{strings.NewReader(input)})
		if err == nil || !strings.Contains(err.Error(), "the line went dead") {
			t.Errorf("after %q: err = %v", input, err)
		}
	}
}

// One pod repeated without end is an error at the second copy, and memory stays as it was.
func TestLoadStopsAtAnEndlessFile(t *testing.T) {
	for name, unit := range map[string]string{"YAML": podYAML + "---\n", "JSON": podJSON1} {
		_, err := Load([]string{Stdin}, &endless{unit: unit})
		if err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	head := `{"apiVersion":"v1","kind":"List","items":[`
	_, err := Load([]string{Stdin}, io.MultiReader(strings.NewReader(head), &endless{unit: podJSON1 + ","}))
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("List: err = %v", err)
	}
}

type endless struct {
	unit string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.unit[e.at:])
	e.at = (e.at + n) % len(e.unit)
	return n, nil
}

func TestALargeListIsNotHeld(t *testing.T) {
	const size = 32 << 20 // of objects that nobody asks for
	unit := `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"note":"…"},`
	body := &liveHeap{Reader: io.LimitReader(&endless{unit: unit}, int64(size/len(unit)*len(unit)))}
	input := io.MultiReader(strings.NewReader(`{"apiVersion":"v1","kind":"List","items":[`), body, strings.NewReader(nodeJSON+"]}"))
	before := heapInUse()
	inv, err := Load([]string{Stdin}, input)
	if err != nil || len(inv.Nodes()) != 1 {
		t.Fatalf("Load: %v", err)
	}
	if body.read < size-len(unit) || body.peak == 0 {
		t.Fatalf("%d bytes were read", body.read)
	}
	if grown := int64(body.peak) - int64(before); grown > 2<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
}

// liveHeap looks, every few MiB that are read, at what is still in use.
type liveHeap struct {
	io.Reader
	read, next int
	peak       uint64
}

func (l *liveHeap) Read(p []byte) (int, error) {
	if l.read >= l.next {
		l.next += 8 << 20
		l.peak = max(l.peak, heapInUse())
	}
	n, err := l.Reader.Read(p)
	l.read += n
	return n, err
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestNotices(t *testing.T) {
	inv, err := load(`{"kind":"ReplicaSetList","apiVersion":"apps/v1","metadata":{"continue":"abc"},"items":[]}` + nodeJSON)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(inv.Notices(), func(n string) bool { return strings.Contains(n, "only one page") }) {
		t.Errorf("notices = %q", inv.Notices())
	}
	if _, presence := inv.Owner("shop", ref("apps/v1", "ReplicaSet", "web", "u")); presence != fate.Unknown {
		t.Errorf("an owner on another page is %v, want Unknown", presence)
	}
}
