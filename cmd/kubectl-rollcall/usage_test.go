package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/build"
)

const oneNode = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"

// Each mistake gives one line that begins with "error: ", at most one hint, no answer, and its exit status.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	node := write("node.yaml", oneNode)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	unauthorized := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer unauthorized.Close()

	for name, tc := range map[string]struct {
		args   []string
		stdin  string
		status int
		error  string
		hint   string
	}{
		"nothing selected":      {args: []string{"check"}, status: 2, error: "which nodes?", hint: "--all-disrupted"},
		"unknown command":       {args: []string{"chekc"}, status: 2, error: `there is no command "chekc"`, hint: "check?"},
		"unknown flag":          {args: []string{"check", "--fiel", node}, status: 2, error: "unknown flag: --fiel", hint: "kubectl rollcall check --help"},
		"flag without value":    {args: []string{"check", "-f"}, status: 2, error: "flag needs an argument"},
		"two selections":        {args: []string{"check", "n1", "--all", "-f", node}, status: 2, error: "exclude each other"},
		"malformed selector":    {args: []string{"check", "-l", "a=(", "-f", node}, status: 2, error: "-l is no label selector"},
		"unknown output":        {args: []string{"check", "-f", node, "-o", "xml"}, status: 2, error: `there is no output format "xml"`, hint: "table, wide, json, yaml"},
		"malformed time":        {args: []string{"check", "-f", node, "--now", "noon"}, status: 2, error: "--now is no RFC3339 time", hint: "for example --now 2"},
		"unknown verdict":       {args: []string{"check", "-f", node, "--verdict", "Gone"}, status: 2, error: `--verdict does not know "Gone"`, hint: "Stranded"},
		"unknown grouping":      {args: []string{"check", "-f", node, "--all", "--group-by", "zone"}, status: 2, error: `--group-by does not know "zone"`},
		"grouping of few":       {args: []string{"check", "-f", node, "--group-by", "owner"}, status: 2, error: "--group-by is for --all"},
		"malformed owner kind":  {args: []string{"check", "--all", "--owner-kinds", "Workflow"}, status: 2, error: "malformed --owner-kinds", hint: "argoproj.io/Workflow"},
		"malformed taint":       {args: []string{"check", "-f", node, "--interruption-taint", "a:b:c"}, status: 2, error: "--interruption-taint"},
		"notice for no cause":   {args: []string{"check", "-f", node, "--notice", "who=1m"}, status: 2, error: "unknown cause"},
		"version with argument": {args: []string{"version", "now"}, status: 2, error: `unexpected argument "now"`},

		"unknown node":          {args: []string{"check", "n2", "-f", node}, status: 1, error: `there is no node "n2"`, hint: "did you mean n1?"},
		"missing file":          {args: []string{"check", "-f", dir + "/none"}, status: 1, error: "no such file"},
		"directory":             {args: []string{"check", "-f", dir}, status: 1, error: "this is a directory", hint: "one by one"},
		"empty file":            {args: []string{"check", "-f", write("empty.yaml", "")}, status: 1, error: "there is no Kubernetes object in it", hint: "kubectl get"},
		"empty standard input":  {args: []string{"check", "-f", "-"}, status: 1, error: "standard input: there is no Kubernetes object"},
		"no YAML":               {args: []string{"check", "-f", "-"}, stdin: "a: b: c", status: 1, error: "document 1: this is no YAML"},
		"no Kubernetes object":  {args: []string{"check", "-f", write("values.yaml", "replicas: 3\n")}, status: 1, error: "values.yaml, document 1: this is no Kubernetes object"},
		"truncated JSON":        {args: []string{"check", "-f", "-"}, stdin: `{"kind":"List","apiVersion":"v1","items":[{"kind":"Node"`, status: 1, error: "item 1: the JSON breaks off"},
		"no nodes":              {args: []string{"check", "-f", "-"}, stdin: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`, status: 1, error: "there is no Node in the input", hint: "kubectl get nodes"},
		"unknown version":       {args: []string{"check", "-f", "-"}, stdin: `{"kind":"Node","apiVersion":"v2","metadata":{"name":"p"}}`, status: 1, error: `Node has apiVersion "v2"`, hint: "kubectl get nodes"},
		"twice":                 {args: []string{"check", "-f", node, "-f", write("again.yaml", oneNode)}, status: 1, error: "Node n1 stands in the input twice", hint: "remove one"},
		"unreadable kubeconfig": {args: []string{"check", "--all", "--kubeconfig", dir + "/none"}, status: 1, error: "the kubeconfig cannot be used", hint: "-f FILE"},
		"broken kubeconfig":     {args: []string{"check", "--all", "--kubeconfig", write("config", "a: b: c")}, status: 1, error: "the kubeconfig cannot be used"},
		"unknown context":       {args: []string{"check", "--all", "--context", "nowhere"}, status: 1, error: `context "nowhere" does not exist`},
		"no cluster":            {args: []string{"check", "--all", "--server", closed.URL}, status: 1, error: "no cluster answers at " + closed.URL, hint: "--kubeconfig"},
		"no credentials":        {args: []string{"check", "--all", "--server", unauthorized.URL}, status: 1, error: "does not accept your credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rollcall(t, strings.NewReader(tc.stdin), tc.args...)
			if r.status != tc.status {
				t.Errorf("exit status %d, want %d", r.status, tc.status)
			}
			if r.stdout != "" {
				t.Errorf("stdout: %s", r.stdout)
			}
			lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
			if !strings.HasPrefix(lines[0], "error: ") || !strings.Contains(lines[0], tc.error) {
				t.Errorf("error: %s\nwant %q in it", lines[0], tc.error)
			}
			if hint := strings.Join(lines[1:], "\n"); !strings.Contains(hint, tc.hint) || len(lines) > 2 || hint != "" && !strings.HasPrefix(hint, "hint: ") {
				t.Errorf("behind the error: %q\nwant one hint with %q in it", hint, tc.hint)
			}
		})
	}
}

// A file of 1 GB that holds one pod over and over ends at its second copy.
func TestAHugeFileOfOnePod(t *testing.T) {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"nodeName":"n1"}}` + "\n"
	input := io.LimitReader(&repeated{text: pod}, 1<<30)
	r := rollcall(t, input, "check", "-f", "-")
	if r.status != 1 || !strings.Contains(r.stderr, "error: standard input, document 2 (line 2): Pod default/web stands in the input twice") {
		t.Errorf("exit status %d, stderr %s", r.status, r.stderr)
	}
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

func TestAnswersWithoutNodes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "n.yaml")
	pods := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {nodeName: n7}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {nodeName: n1}\n"
	if err := os.WriteFile(file, []byte(oneNode+pods), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rollcall(t, nil, "check", "--all-disrupted", "-f", file, "-o", "json")
	if r.status != 0 || strings.Join(strings.Fields(r.stdout), "") != `{"nodes":[]}` {
		t.Errorf("no disrupted node: exit status %d, stdout %s", r.status, r.stdout)
	}
	if want := "note: 1 pod is left out: its node is not in the input (n7)\n"; r.stderr != want {
		t.Errorf("stderr %q, want %q", r.stderr, want)
	}
	r = rollcall(t, nil, "check", "--all-disrupted", "-f", file)
	if r.status != 0 || !strings.Contains(r.stdout, "no node is marked for disruption") {
		t.Errorf("no disrupted node: exit status %d, stdout %s", r.status, r.stdout)
	}
	for args, status := range map[string]int{"": 3, "-n default": 3, "-n other": 0, "--verdict returns": 0, "--verdict LOST,Stranded": 3, "-l a=b": 0, "n1": 3} {
		r := rollcall(t, nil, append([]string{"check", "-f", file, "-o", "json"}, strings.Fields(args)...)...)
		if r.status != status {
			t.Errorf("%s: exit status %d, want %d: %s", args, r.status, status, r.stderr)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		if r := rollcall(t, nil, args); r.status != 0 || r.stdout != fmt.Sprintf("kubectl rollcall %s\n", build.Line()) {
			t.Errorf("%s: exit status %d, stdout %q", args, r.status, r.stdout)
		}
	}
	r := rollcall(t, nil, "__complete", "check", "-f", "x", "-o", "")
	if r.status != 0 || !strings.HasPrefix(r.stdout, "table\nwide\njson\nyaml\n") {
		t.Errorf("completion of -o: exit status %d, stdout %q", r.status, r.stdout)
	}
}
