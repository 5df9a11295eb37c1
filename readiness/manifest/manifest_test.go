package manifest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %NAME%, namespace: edge}\nspec: {containers: [{name: c, image: i}]}\n"

func podNamed(name string) string { return strings.ReplaceAll(pod, "%NAME%", name) }

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What is no file keeps nobody waiting, sizes have their bound, and every name counts but those with a dot in front.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	comment := func(size int) string {
		text := podNamed("big")
		return text + "#" + string(bytes.Repeat([]byte("x"), size-len(text)-2)) + "\n"
	}
	write(t, dir, map[string]string{
		"a": podNamed("plain"), ".b.yaml": podNamed("dot"), "c~": podNamed("editor"), "#d#": podNamed("emacs"),
		"big.yaml": comment(maxLength - 1), "bigger.yaml": comment(maxLength), "e.yaml": podNamed("twice"), "e.yaml.bak": podNamed("twice"),
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		listing, err := Read(dir+"/", "n1")
		if err != nil {
			t.Error(err)
		}
		var pods, ignored []string
		for _, p := range listing.Pods {
			pods = append(pods, p.Key())
		}
		for _, f := range listing.Ignored {
			ignored = append(ignored, f.File)
		}
		if got := strings.Join(pods, " "); got != "edge/emacs-n1 edge/plain-n1 edge/big-n1 edge/editor-n1 edge/twice-n1" {
			t.Errorf("pods: %s", got)
		}
		if got := strings.Join(ignored, " "); got != "bigger.yaml e.yaml fifo" {
			t.Errorf("ignored: %s", got)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("reading hangs")
	}
}

// A path may be a single file, whose name may begin with a dot; without a pod it is no answer, like a path that is not there
// or is neither.
func TestSingleFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{".pod": podNamed("single"), "broken": "kind: ["})
	if listing, err := Read(filepath.Join(dir, ".pod"), "n1"); err != nil || len(listing.Pods) != 1 {
		t.Errorf("got %+v, %v", listing, err)
	}
	if _, err := Read(filepath.Join(dir, "broken"), "n1"); err == nil {
		t.Error("a broken file is an answer")
	}
	if _, err := Read(filepath.Join(dir, "nowhere"), "n1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent path: %v", err)
	}
	if _, err := Read("/dev/null", "n1"); err == nil {
		t.Error("a device is an answer")
	}
}

// Defaults that requests depend on, and where the hash is known.
func TestDecode(t *testing.T) {
	for _, test := range []struct{ name, spec, cpu, memory string }{
		{"limits stand for requests", "containers: [{name: c, image: i, resources: {limits: {cpu: 1, memory: 1Gi}}}]", "1", "1Gi"},
		{"rounded up to thousandths", "containers: [{name: c, image: i, resources: {requests: {cpu: 0.0001}}}]", "1m", "0"},
		{"the larger of init and main", "initContainers: [{name: i, image: i, resources: {requests: {cpu: 2}}}]\n  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]", "2", "0"},
		{"a sidecar adds", "initContainers: [{name: i, image: i, restartPolicy: Always, resources: {requests: {cpu: 2}}}]\n  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]", "3", "0"},
		{"pod level", "resources: {requests: {cpu: 4}}\n  containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1Mi}}}]", "4", "1Mi"},
		{"overhead adds", "overhead: {cpu: 100m}\n  containers: [{name: c, image: i}]", "100m", "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			decoded, err := Decode([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: fixed}\nspec:\n  "+test.spec), "n1")
			if err != nil {
				t.Fatal(err)
			}
			got := describe(decoded)
			if got.CPU.String() != test.cpu || got.Memory.String() != test.memory || got.Hash != "fixed" || got.Key() != "default/a-n1" {
				t.Errorf("got %s cpu %s memory %s hash %q", got.Key(), got.CPU.String(), got.Memory.String(), got.Hash)
			}
		})
	}
}

// Refusals say what is wrong in words of their own.
func TestRefusals(t *testing.T) {
	for content, why := range map[string]string{
		"":                              "empty",
		"---\n---\n" + podNamed("a"):    "first document",
		"just text":                     "plain text",
		"- a":                           "list",
		"{kind: Pod}":                   "begins with a brace",
		"kind: [":                       "no YAML",
		"metadata: {name: a}":           "apiVersion and kind",
		"apiVersion: v1\nkind: Service": "kind Service of v1",
		"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}": "kind DaemonSet of apps/v1",
		podNamed(`""`): "no name",
		podNamed("A"):  "metadata.name",
		strings.Replace(podNamed("a"), "name: c,", "name: C,", 1):                  "spec.containers[0].name",
		strings.Replace(podNamed("a"), "image: i", "ports: [{hostPort: 1}]", 1):    "image",
		strings.Replace(podNamed("a"), "containers: [{name: c, image: i}]", "", 1): "spec.containers",
	} {
		if _, err := Decode([]byte(content), "n1"); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q in it", content, err, why)
		}
	}
}
