package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadInput: what a user gets wrong ends at once, with the exit status of its kind and a message that says what to do.
func TestBadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		status int
		says   []string
	}{
		"unknown flag":               {[]string{"--interuption-taint=a"}, exitUsage, []string{"unknown flag: --interuption-taint", "--help lists the flags"}},
		"argument":                   {[]string{"node-1"}, exitUsage, []string{`unexpected argument "node-1"`}},
		"malformed taint":            {[]string{"--interruption-taint=a:Sometimes"}, exitUsage, []string{"--interruption-taint", `"Sometimes" is no effect`, "key[=value][:effect]"}},
		"soft taint":                 {[]string{"--interruption-taint=a=b:PreferNoSchedule"}, exitUsage, []string{"PreferNoSchedule", "never counts"}},
		"malformed notice":           {[]string{"--notice=2m"}, exitUsage, []string{"cause=duration"}},
		"notice of an unknown cause": {[]string{"--notice=spot=2m"}, exitUsage, []string{`unknown cause "spot"`}},
		"unknown verdict":            {[]string{"--mark=Lost,Returns"}, exitUsage, []string{`"Returns"`, "Lost, Stranded and Unsure"}},
		"owner kind without group":   {[]string{"--owner-kinds=Workflow"}, exitUsage, []string{"group/Kind", "argoproj.io/Workflow"}},
		"built-in owner kind":        {[]string{"--owner-kinds=apps/ReplicaSet"}, exitUsage, []string{"built-in kinds are watched anyway"}},
		"no workers":                 {[]string{"--workers=0"}, exitUsage, []string{"--workers"}},
		"log format":                 {[]string{"--log-format=xml"}, exitUsage, []string{"text or json"}},
		"times of the Lease":         {[]string{"--leader-elect-renew-deadline=20s"}, exitUsage, []string{"must be longer than"}},
		"negative limit":             {[]string{"--kube-api-qps=-1"}, exitUsage, []string{"0 means no limit"}},
		"malformed readiness taint":  {[]string{"--readiness-taint=a/b/c"}, exitUsage, []string{"--readiness-taint", "no key of a taint", "key[=value][:effect]"}},
		"effect of readiness taint":  {[]string{"--readiness-taint=a/b:NoWay"}, exitUsage, []string{`"NoWay"`, "NoExecute"}},
		"type of condition":          {[]string{"--condition=a b"}, exitUsage, []string{"--condition", "readiness.example.com/StaticPodsMirrored"}},
		"negative settle time":       {[]string{"--settle=-1s"}, exitUsage, []string{"--settle", "cannot be negative"}},
		"help":                       {[]string{"--help"}, exitOK, []string{"--interruption-taint", "--leader-elect", "--kubeconfig"}},
		"version":                    {[]string{"--version"}, exitOK, []string{"version"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if status := run(t.Context(), tc.args, &out, &out); status != tc.status {
				t.Errorf("exit status %d, want %d", status, tc.status)
			}
			for _, text := range tc.says {
				if !strings.Contains(out.String(), text) {
					t.Errorf("does not say %q:\n%s", text, out.String())
				}
			}
		})
	}
}

// TestCannotStart: so does what turns out to be wrong once the controller starts. Each is a process of its own: where the client
// libraries log to is one variable of a process, which goroutines of theirs that other tests left may still read.
func TestCannotStart(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("clusters: [unclosed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		says []string
	}{
		"no kubeconfig at all":      {nil, []string{"no cluster is configured", "--kubeconfig"}},
		"absent kubeconfig":         {[]string{"--kubeconfig=" + filepath.Join(dir, "absent")}, []string{"no such file", "--kubeconfig"}},
		"broken kubeconfig":         {[]string{"--kubeconfig=" + broken}, []string{broken, "--kubeconfig"}},
		"kubeconfig is a directory": {[]string{"--kubeconfig=" + dir}, []string{"is a directory"}},
		"unknown context":           {[]string{"--kubeconfig=" + aKubeconfig(t, "https://127.0.0.1:1"), "--context=nowhere"}, []string{"nowhere"}},
		"address that is taken":     {[]string{"--kubeconfig=" + aKubeconfig(t, "https://127.0.0.1:1"), "--health-address=256.0.0.1:1"}, []string{"--health-address"}},
	} {
		t.Run(name, func(t *testing.T) {
			controller := exec.CommandContext(t.Context(), os.Args[0], tc.args...)
			controller.Env = append(os.Environ(), asProcess+"=1", "KUBECONFIG="+filepath.Join(dir, "absent"), "KUBERNETES_SERVICE_HOST=")
			out, err := controller.CombinedOutput()
			if status := controller.ProcessState.ExitCode(); status != exitError {
				t.Errorf("exit status %d, want %d (%v)", status, exitError, err)
			}
			for _, text := range tc.says {
				if !strings.Contains(string(out), text) {
					t.Errorf("does not say %q:\n%s", text, out)
				}
			}
		})
	}
}

func aKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"` + server + `"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
