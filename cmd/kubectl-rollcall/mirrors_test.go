package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/readiness"
)

const mirrorsCases = "../../readiness/testdata/cases"

// wantedMirrors is a want.json; fields that it leaves out are free.
type wantedMirrors struct {
	Node, Status, Reason string
	WaitingFor, Expected *[]string
	Ignored              *[]readiness.IgnoredFile
	MayIgnore            []string
	Exit                 int
}

func TestMirrorsCases(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(mirrorsCases, "*", "want.json"))
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d cases: %v", len(files), err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			var want wantedMirrors
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			args := []string{"mirrors", "-f", filepath.Join(dir, "objects.yaml"), "--node", want.Node, "-o", "json"}
			r := rollcall(t, nil, append(args, sourcesOf(t, dir)...)...)
			var got readiness.Report
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
				t.Fatalf("no report: %v\n%s", err, r.stderr)
			}
			c := comparison{t: t}
			c.equal("exit status", r.status, want.Exit)
			c.mirrors(got, want)
		})
	}
}

// sourcesOf returns the flags for a case's sources of static pods.
func sourcesOf(t *testing.T, dir string) []string {
	t.Helper()
	var args []string
	manifests := filepath.Join(dir, "manifests")
	if setup := filepath.Join(dir, "setup.sh"); there(setup) {
		manifests = t.TempDir()
		if out, err := exec.Command("sh", setup, manifests).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", setup, err, out)
		}
	}
	if there(manifests) {
		args = append(args, "--manifests", manifests)
	}
	if pods := filepath.Join(dir, "kubelet-pods.json"); there(pods) {
		args = append(args, "--kubelet-pods", pods)
	}
	return args
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (c comparison) mirrors(got readiness.Report, want wantedMirrors) {
	c.t.Helper()
	c.equal("node", got.Node, want.Node)
	c.equal("status", string(got.Status), want.Status)
	if want.Reason != "" {
		c.equal("reason", got.Reason, want.Reason)
	}
	if got.Message == "" {
		c.t.Error("there is no message")
	}
	c.set("expected", got.Expected, want.Expected)
	c.set("waitingFor", got.WaitingFor, want.WaitingFor)
	if want.Ignored == nil {
		return
	}
	var ignored, files []string
	for _, file := range got.Ignored {
		if file.Why == "" {
			c.t.Errorf("%s is ignored without a reason", file.File)
		}
		if !slices.Contains(want.MayIgnore, file.File) {
			ignored = append(ignored, file.File)
		}
	}
	for _, file := range *want.Ignored {
		files = append(files, file.File)
	}
	c.set("ignored", ignored, &files)
}

func (c comparison) set(where string, got []string, want *[]string) {
	c.t.Helper()
	if want == nil {
		return
	}
	got, sorted := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(*want))
	if !slices.Equal(got, sorted) {
		c.t.Errorf("%s: got %v, want %v", where, got, sorted)
	}
}

// What is on the Node counts where no source is given; a kubelet without pods has not answered; whose directory is not
// there has no answer; the kubelet's answer decides over the directory, whose ignored files are reported.
func TestMirrorsSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	set := `{"source":"PodsAPI","bootID":"b1","observed":"2026-03-10T08:00:00Z","pods":[{"namespace":"edge","name":"tunnel-n1","hash":"f00","cpu":"1","memory":"0"}],"ignored":[{"file":"x","why":"no name"}]}`
	node := func(boot string) string {
		return "apiVersion: v1\nkind: Node\nmetadata: {name: n1, annotations: {rollcall.dev/static-pods: '" + set + "'}}\nstatus: {nodeInfo: {bootID: " + boot + "}}\n"
	}
	here, rebooted := write("here.yaml", node("b1")), write("rebooted.yaml", node("b2"))
	none, noPods := write("none.json", `{"kind":"PodList","items":null}`), write("api.json", `{"kind":"PodList","items":[{"metadata":{"name":"a"}}]}`)
	write("manifests/bad.yaml", "kind: [")
	manifests := filepath.Join(dir, "manifests")
	for _, test := range []struct {
		name    string
		args    []string
		reason  string
		ignored int
	}{
		{"published", []string{"-f", here}, readiness.MirrorMissing, 1},
		{"published in an earlier boot", []string{"-f", rebooted}, readiness.KubeletNotReady, 0},
		{"kubelet without an answer", []string{"-f", here, "--kubelet-pods", none}, readiness.KubeletNotReady, 0},
		{"kubelet without static pods", []string{"-f", here, "--kubelet-pods", noPods}, readiness.NoStaticPods, 0},
		{"kubelet over directory", []string{"-f", here, "--kubelet-pods", noPods, "--manifests", manifests}, readiness.NoStaticPods, 1},
		{"absent directory", []string{"-f", here, "--manifests", filepath.Join(dir, "nowhere")}, readiness.KubeletNotReady, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rollcall(t, nil, append([]string{"mirrors", "n1", "-o", "json"}, test.args...)...)
			var got readiness.Report
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
				t.Fatalf("no report: %v\n%s", err, r.stderr)
			}
			if got.Reason != test.reason || len(got.Ignored) != test.ignored {
				t.Errorf("got %+v, want reason %s and %d ignored files", got, test.reason, test.ignored)
			}
		})
	}
}

// A mistake is told in one line, with a way out, and has the exit status of its kind.
func TestMirrorsMistakes(t *testing.T) {
	objects := filepath.Join(mirrorsCases, "001-all-mirrored", "objects.yaml")
	for _, test := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, exitUsage, "which node?"},
		{[]string{"a", "b"}, exitUsage, "one node"},
		{[]string{"-f", objects, "--node", "n1", "-o", "xml"}, exitUsage, "no output format"},
		{[]string{"-f", objects, "--node", "other"}, exitError, "no Node other"},
		{[]string{"-f", "nowhere.yaml", "--node", "n1"}, exitError, "no such file"},
		{[]string{"-f", objects, "--node", "n1", "--kubelet-pods", objects}, exitError, "kubelet's pods"},
		{[]string{"n1"}, exitError, "no cluster"},
	} {
		r := rollcall(t, nil, append([]string{"mirrors"}, test.args...)...)
		if r.status != test.status || !strings.Contains(r.stderr, test.says) || !strings.Contains(r.stderr, "hint: ") {
			t.Errorf("mirrors %v: exit %d, %q; want %d and %q with a hint", test.args, r.status, r.stderr, test.status, test.says)
		}
	}
}
