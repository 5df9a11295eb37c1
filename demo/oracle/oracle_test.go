package oracle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/manifest"
)

const node = "n1"

// corpus returns the manifest directories of the shared cases and the nodes that they are about.
func corpus(t testing.TB) map[string]string {
	t.Helper()
	wants, err := filepath.Glob("../../readiness/testdata/cases/*/want.json")
	if err != nil || len(wants) < 30 {
		t.Fatalf("found %d cases: %v", len(wants), err)
	}
	dirs := map[string]string{}
	for _, file := range wants {
		var want struct{ Node string }
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(filepath.Dir(file), "manifests")
		if setup := filepath.Join(filepath.Dir(file), "setup.sh"); exists(setup) {
			dir = t.TempDir()
			if out, err := exec.Command("sh", setup, dir).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", setup, err, out)
			}
		}
		if exists(dir) {
			dirs[dir] = want.Node
		}
	}
	return dirs
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// The kubelet's own file source, running, and manifest.Read give the same pods of each directory of the corpus.
func TestDirectories(t *testing.T) {
	for dir, node := range corpus(t) {
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			pods := fileSource(t, dir, node)
			listing, err := manifest.Read(dir, node)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for _, pod := range pods {
				want = append(want, describe(readiness.NewStaticPod(pod, "")))
			}
			for _, pod := range listing.Pods {
				got = append(got, describe(pod))
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, the kubelet has %v", got, want)
			}
		})
	}
}

func describe(p readiness.StaticPod) string {
	return fmt.Sprintf("%s cpu=%s memory=%s", p.Key(), p.CPU.String(), p.Memory.String())
}

// fileSource runs the kubelet's file source over a directory and returns its first update.
func fileSource(t *testing.T, dir, node string) []*corev1.Pod {
	t.Helper()
	pods := config.NewPodConfig(record.NewFakeRecorder(100), nil)
	config.NewSourceFile(klog.Background(), dir, types.NodeName(node), time.Hour, pods.Channel(t.Context(), kubetypes.FileSource))
	select {
	case update := <-pods.Updates():
		return update.Pods
	case <-time.After(time.Minute):
		t.Fatal("the kubelet's file source says nothing")
		return nil
	}
}

// rounds is how many mutants a test decodes; ROLLCALL_FULL asks for many.
func rounds() int {
	if os.Getenv("ROLLCALL_FULL") != "" {
		return 40_000
	}
	return 3_000
}

// A comparison counts what the two decoders say.
type comparison struct {
	accepted, refused, extra int
	extras                   map[string]int
	example                  map[string]string
}

func newComparison() *comparison {
	return &comparison{extras: map[string]int{}, example: map[string]string{}}
}

// check fails where the kubelet runs a pod that manifest.Decode omits or describes otherwise.
func (c *comparison) check(t testing.TB, data []byte) {
	t.Helper()
	want, oracleErr := Decode(data, node)
	got, err := manifest.Decode(data, node)
	switch {
	case oracleErr == nil && err != nil:
		t.Errorf("the kubelet runs %s, which is refused here: %v\n%s", want.Name, err, data)
	case oracleErr == nil:
		c.accepted++
		same(t, got, want, data)
	case err == nil:
		c.extra++
		key := category(oracleErr)
		c.extras[key]++
		c.example[key] = oracleErr.Error()
	default:
		c.refused++
	}
}

func same(t testing.TB, got, want *corev1.Pod, data []byte) {
	t.Helper()
	if got.Namespace != want.Namespace || got.Name != want.Name || got.UID != "" && got.UID != want.UID {
		t.Errorf("got %s/%s uid %q, the kubelet has %s/%s uid %q\n%s", got.Namespace, got.Name, got.UID, want.Namespace, want.Name, want.UID, data)
	}
	g, w := resourcehelper.PodRequests(got, resourcehelper.PodResourcesOptions{}), resourcehelper.PodRequests(want, resourcehelper.PodResourcesOptions{})
	if g.Cpu().Cmp(*w.Cpu()) != 0 || g.Memory().Cmp(*w.Memory()) != 0 {
		t.Errorf("%s: got requests %v %v, the kubelet has %v %v\n%s", got.Name, g.Cpu(), g.Memory(), w.Cpu(), w.Memory(), data)
	}
}

var (
	index  = regexp.MustCompile(`\[[^]]*\]`)
	quoted = regexp.MustCompile(`"[^"]*"`)
)

// category makes of an error of the kubelet's validation the field that it is about.
func category(err error) string {
	text := strings.TrimPrefix(err.Error(), "invalid pod: ")
	text = strings.TrimPrefix(text, "[")
	text = index.ReplaceAllString(quoted.ReplaceAllString(text, `""`), "[]")
	if i := strings.Index(text, ": "); i > 0 {
		if j := strings.Index(text[i+2:], ": "); j > 0 {
			return text[:i+2+j]
		}
	}
	return text[:min(len(text), 80)]
}

func (c *comparison) report(t *testing.T) {
	t.Logf("%d run by both, %d refused by both, %d taken for pods here only", c.accepted, c.refused, c.extra)
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k := range c.extras {
			if !yield(k) {
				return
			}
		}
	}) {
		t.Logf("  extra %6d  %s  (%.160s)", c.extras[key], key, c.example[key])
	}
	if c.accepted == 0 || c.refused == 0 {
		t.Error("the mutants are of one kind only")
	}
}

// Mutants of the corpus's files, bytes and lines moved about.
func TestMutatedText(t *testing.T) {
	files := texts(t)
	c := newComparison()
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds() {
		c.check(t, mutateText(random, files))
		if t.Failed() {
			break
		}
	}
	c.report(t)
}

func texts(t testing.TB) [][]byte {
	var files [][]byte
	for dir := range corpus(t) {
		paths, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil {
				files = append(files, data)
			}
		}
	}
	// The order of a map must not change the mutants.
	slices.SortFunc(files, slices.Compare)
	text, err := yaml.Marshal(richPod())
	if err != nil {
		t.Fatal(err)
	}
	return append(files, text)
}

var snippets = []string{
	"---\n", "...\n", "# c\n", "{", "}", "\t", "\r\n", "\ufeff", "null", "~", "kind: Pod\n", "apiVersion: v1\n", "- ", ": ", "\x00", "&a ", "*a", "<<: ",
	"name: x\n", "  namespace: y\n", "  uid: fixed\n", "!!binary ", "\"", "'", "|\n", "[", "]", ",", "0x10", "1e3", "yes", "k8s\x00",
}

func mutateText(random *rand.Rand, files [][]byte) []byte {
	data := slices.Clone(files[random.IntN(len(files))])
	for range 1 + random.IntN(3) {
		if len(data) == 0 {
			data = []byte("\n")
		}
		at := random.IntN(len(data))
		switch random.IntN(6) {
		case 0:
			data = slices.Delete(data, at, min(len(data), at+1+random.IntN(8)))
		case 1, 2:
			data = slices.Insert(data, at, []byte(snippets[random.IntN(len(snippets))])...)
		case 3:
			lines := strings.SplitAfter(string(data), "\n")
			i, j := random.IntN(len(lines)), random.IntN(len(lines))
			lines[i], lines[j] = lines[j], lines[i]
			data = []byte(strings.Join(lines, ""))
		case 4:
			lines := strings.SplitAfter(string(data), "\n")
			i := random.IntN(len(lines))
			data = []byte(strings.Join(slices.Insert(lines, i, lines[random.IntN(len(lines))]), ""))
		case 5:
			data = append(data, files[random.IntN(len(files))]...)
		}
	}
	return data
}

// Mutants of a pod that uses much of the API, values and fields moved about.
func TestMutatedPods(t *testing.T) {
	c := newComparison()
	random := rand.New(rand.NewPCG(3, 4))
	for range rounds() {
		pod := richPod()
		for range 1 + random.IntN(2) {
			mutateTree(random, pod)
		}
		data, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(4) == 0 {
			if data, err = yaml.JSONToYAML(data); err != nil {
				t.Fatal(err)
			}
		}
		c.check(t, data)
		if t.Failed() {
			break
		}
	}
	c.report(t)
}

var values = []any{
	nil, "", "x", "X", "a b", " x", "x ", "a.b", "a_b", "-a", "a/b", "/a/b", "../a", "a/../b", "..a", "~", strings.Repeat("a", 64), strings.Repeat("a", 254),
	0, 1, -1, 2, 3.5, 65535, 65536, 1 << 31, 1e20, true, false, "100m", "0.0001", "-1", "1Gi", "0.5", "1e3", "1n", "NaN",
	map[string]any{}, []any{}, []any{map[string]any{}}, map[string]any{"name": "x"}, map[string]any{"cpu": "1"}, map[string]any{"a": "b"}, map[string]any{"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "2Mi"},
	"Always", "Never", "OnFailure", "Exists", "Equal", "NoSchedule", "NoExecute", "TCP", "UDP", "tcp", "Default", "None", "ClusterFirst",
	"File", "Localhost", "RuntimeDefault", "HostToContainer", "Bidirectional", "metadata.name", "metadata.labels['a']", "spec.nodeName", "limits.cpu", "1.2.3.4", "::1", "v1",
}

// mutateTree changes one place in an object.
func mutateTree(random *rand.Rand, tree map[string]any) {
	type place struct {
		get    func() any
		set    func(any)
		remove func()
	}
	var places []place
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			keys := make([]string, 0, len(v))
			for key := range v {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			for _, key := range keys {
				places = append(places, place{func() any { return v[key] }, func(n any) { v[key] = n }, func() { delete(v, key) }})
				walk(v[key])
			}
		case []any:
			for i := range v {
				places = append(places, place{func() any { return v[i] }, func(n any) { v[i] = n }, func() { v[i] = deepCopy(v[random.IntN(len(v))]) }})
				walk(v[i])
			}
		}
	}
	walk(tree)
	at := places[random.IntN(len(places))]
	switch random.IntN(5) {
	case 0:
		at.remove()
	case 1:
		at.set(deepCopy(places[random.IntN(len(places))].get()))
	case 2:
		if list, ok := at.get().([]any); ok && len(list) > 0 {
			at.set(append(slices.Clone(list), deepCopy(list[random.IntN(len(list))])))
			return
		}
		at.set(deepCopy(values[random.IntN(len(values))]))
	default:
		at.set(deepCopy(values[random.IntN(len(values))]))
	}
}

// deepCopy keeps a tree from containing itself.
func deepCopy(value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // values are JSON's own
	}
	var copied any
	if err := json.Unmarshal(data, &copied); err != nil {
		panic(err)
	}
	return copied
}
