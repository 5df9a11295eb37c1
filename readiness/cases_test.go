package readiness_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/manifest"
)

// want is the right answer of a case; a field that is absent is not compared.
type want struct {
	Node       string
	Status     corev1.ConditionStatus
	Reason     string
	WaitingFor *[]string
	Expected   *[]string
	Ignored    *[]struct{ File string }
	MayIgnore  []string
}

// The shared cases, each through the functions that the agent and the command use.
func TestCases(t *testing.T) {
	dirs, err := filepath.Glob("testdata/cases/*/want.json")
	if err != nil || len(dirs) < 30 {
		t.Fatalf("found %d cases: %v", len(dirs), err)
	}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) { runCase(t, dir) })
	}
}

func runCase(t *testing.T, dir string) {
	var w want
	read(t, filepath.Join(dir, "want.json"), func(data []byte) error { return json.Unmarshal(data, &w) })
	node, pods := objects(t, dir, w.Node)
	expected := expectedOf(t, dir, w.Node)
	got := readiness.Evaluate(node, expected, pods)
	if got.Status != w.Status || w.Reason != "" && got.Reason != w.Reason {
		t.Errorf("got %s %s (%s), want %s %s", got.Status, got.Reason, got.Message, w.Status, w.Reason)
	}
	compare(t, "expected", got.Expected, w.Expected)
	compare(t, "waiting for", got.WaitingFor, w.WaitingFor)
	if w.Ignored == nil {
		return
	}
	var ignored []string
	for _, file := range expected.Ignored {
		if file.Why == "" {
			t.Errorf("%s is ignored without a reason", file.File)
		}
		if !slices.Contains(w.MayIgnore, file.File) {
			ignored = append(ignored, file.File)
		}
	}
	var files []string
	for _, file := range *w.Ignored {
		files = append(files, file.File)
	}
	compare(t, "ignored", ignored, &files)
}

func compare(t *testing.T, what string, got []string, want *[]string) {
	t.Helper()
	if want == nil {
		return
	}
	got, sorted := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(*want))
	if !slices.Equal(got, sorted) {
		t.Errorf("%s: got %v, want %v", what, got, sorted)
	}
}

func read(t *testing.T, file string, use func([]byte) error) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = use(data)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func objects(t *testing.T, dir, name string) (*corev1.Node, []*corev1.Pod) {
	t.Helper()
	var node *corev1.Node
	var pods []*corev1.Pod
	read(t, filepath.Join(dir, "objects.yaml"), func(data []byte) error {
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			var raw json.RawMessage
			if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			var meta struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := json.Unmarshal(raw, &meta); err != nil {
				return err
			}
			switch {
			case meta.Kind == "Pod":
				pod := &corev1.Pod{}
				if err := json.Unmarshal(raw, pod); err != nil {
					return err
				}
				pods = append(pods, pod)
			case meta.Kind == "Node" && meta.Metadata.Name == name:
				node = &corev1.Node{}
				if err := json.Unmarshal(raw, node); err != nil {
					return err
				}
			}
		}
	})
	if node == nil {
		t.Fatalf("no node %s", name)
	}
	return node, pods
}

// expectedOf reads the expected set of a case: the kubelet's answer, else the directory, else nothing is known.
func expectedOf(t *testing.T, dir, node string) readiness.Expected {
	t.Helper()
	var expected readiness.Expected
	if data, err := os.ReadFile(filepath.Join(dir, "kubelet-pods.json")); err == nil {
		list := &corev1.PodList{}
		if err := json.Unmarshal(data, list); err != nil {
			t.Fatal(err)
		}
		var pods []*corev1.Pod
		for i := range list.Items {
			pods = append(pods, &list.Items[i])
		}
		expected.Pods = readiness.FromKubelet(pods)
		return expected
	}
	manifests := filepath.Join(dir, "manifests")
	if setup := filepath.Join(dir, "setup.sh"); exists(setup) {
		manifests = t.TempDir()
		if out, err := exec.Command("sh", setup, manifests).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", setup, err, out)
		}
	}
	if !exists(manifests) {
		expected.Unknown = "nobody was asked"
		return expected
	}
	listing, err := manifest.Read(manifests, node)
	if err != nil {
		t.Fatal(err)
	}
	expected.Pods, expected.Ignored = listing.Pods, listing.Ignored
	return expected
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
