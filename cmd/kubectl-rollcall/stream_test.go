package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// aController serves the stream of a node that goes, with a pod that is lost, and one that comes.
func aController(t *testing.T) (address string) {
	t.Helper()
	at := time.Date(2026, 12, 1, 19, 0, 0, 0, time.UTC)
	hub := stream.NewHub(stream.Server{Boot: "b", Identity: "pod-a_1", Program: "v1"}, time.Now)
	hub.Put(stream.Content{
		Queue:  &stream.Totals{Depth: 3, Running: 1},
		Going:  []*stream.GoingNode{{Name: "n1", State: "Committed", Cause: "spot-interruption", Verdicts: map[string]int{"Lost": 1}, Collateral: 2}},
		Pods:   []*stream.Pod{{UID: "u", Namespace: "shop", Name: "web", Node: "n1", Verdict: "Lost", Reason: "NoController"}},
		Coming: []*stream.ComingNode{{ID: "c", Node: "n2", Held: true, Missing: []string{"kube-system/proxy-n2"}}},
	})
	hub.Decide(&stream.Decision{Time: at, What: "mark", Object: "shop/web", Node: "n1", Verdict: "Lost", Reason: "NoController", Cause: "spot-interruption", Why: "\x1b[31mred"})
	server := httptest.NewServer(&stream.Handler{Hub: hub})
	t.Cleanup(server.Close)
	t.Cleanup(hub.Close)
	return server.Listener.Addr().String()
}

// stream --once prints what is true now, as a record and in words; a recording gives the same again.
func TestStreamOnce(t *testing.T) {
	address := aController(t)
	recording := filepath.Join(t.TempDir(), "recording")
	got := rollcall(t, nil, "stream", "--stream-address", address, "--once", "-o", "json", "--record", recording)
	var record stream.Record
	if err := json.Unmarshal([]byte(got.stdout), &record); err != nil || got.status != 0 || got.stderr != "" {
		t.Fatalf("exit status %d, %v\n%s\n%s", got.status, err, got.stdout, got.stderr)
	}
	if record.Kind != stream.Snapshot || record.Pods[0].Name != "web" || strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("it prints %s", got.stdout)
	}
	words := []string{
		"leads: 1 node going, 1 node coming, queue 3 (1 running, 0 backing off)", "node n1 Committed (spot-interruption): Lost 1, elsewhere 2",
		"node n2 is held, waiting for kube-system/proxy-n2", "mark shop/web Lost NoController, node n1 (spot-interruption): \uFFFD[31mred",
	}
	for source, args := range map[string][]string{"address": {"--stream-address", address, "--once"}, "recording": {"--replay", recording}} {
		told := rollcall(t, nil, append([]string{"stream"}, args...)...)
		for _, text := range words {
			if !strings.Contains(told.stdout, text) || told.status != 0 || told.stderr != "" {
				t.Errorf("%s: exit status %d, without %q:\n%s%s", source, told.status, text, told.stdout, told.stderr)
			}
		}
	}
	if again := rollcall(t, nil, "stream", "--replay", recording, "-o", "json"); again.stdout != got.stdout || again.status != 0 {
		t.Errorf("the recording gives %q, exit status %d", again.stdout, again.status)
	}
	if twice := rollcall(t, nil, "stream", "--replay", recording, "--record", recording); twice.status != 1 || !strings.Contains(twice.stderr, "file exists") {
		t.Errorf("a recording is written over: %d %s", twice.status, twice.stderr)
	}
}

// aCluster is an API server that gives every request one answer, as a Status.
func aCluster(t *testing.T, code int, reason, message string) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
	}))
	t.Cleanup(server.Close)
	return server
}

// twoContexts is a kubeconfig with contexts a (the current one) and b, the user of both a JSON object.
func twoContexts(t *testing.T, server, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a",
"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":%s}],
"contexts":[{"name":"a","context":{"cluster":"c","user":"u"}},{"name":"b","context":{"cluster":"c","user":"u"}}]}`, server, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// plugin is a user whose credentials come from a shell script.
func plugin(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":%q,"interactiveMode":"Never"}}`, path)
}

// Where there is no stream, the message says why, of which context, and the way out. Standard output stays clean, whatever
// a credential plugin says.
func TestStreamMessages(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Fatal(err)
	}
	missing := aCluster(t, http.StatusNotFound, "NotFound", `leases "rollcall-controller" not found`)
	refused := aCluster(t, http.StatusForbidden, "Forbidden", `leases is forbidden: User "u" cannot get`)
	token := `{"token":"t"}`
	noisy := plugin(t, `echo "WARNING: your session ends soon" >&2
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'`)
	failing := plugin(t, "echo 'token expired' >&2\nexit 3")
	for name, tc := range map[string]struct {
		args   []string
		status int
		says   []string
	}{
		"no controller": {[]string{"--kubeconfig", twoContexts(t, missing.URL, token)}, 1,
			[]string{"error: no controller leads in this cluster: there is no Lease rollcall-system/rollcall-controller", "--controller-namespace", `this is context "a", one of 2`}},
		"no controller in the other context": {[]string{"--kubeconfig", twoContexts(t, missing.URL, token), "--context", "b", "--controller-namespace", "karpenter"}, 1,
			[]string{"there is no Lease karpenter/rollcall-controller", `this is context "b", one of 2`}},
		"no right": {[]string{"--kubeconfig", twoContexts(t, refused.URL, token)}, 1,
			[]string{"error: you may not get leases in namespace rollcall-system", "kubectl auth can-i get leases -n rollcall-system", `this is context "a"`}},
		"a plugin that talks": {[]string{"--kubeconfig", twoContexts(t, missing.URL, noisy)}, 1,
			[]string{"WARNING: your session ends soon\n", "error: no controller leads in this cluster"}},
		"a plugin that fails": {[]string{"--kubeconfig", twoContexts(t, missing.URL, failing)}, 1,
			[]string{"token expired\n", "error: the kubeconfig's credential plugin gave no credentials", "exit code 3", "run it by hand"}},
		"no server": {[]string{"--stream-address", "127.0.0.1:1"}, 1, []string{"no controller answers at 127.0.0.1:1", "--stream-address"}},
		"no recording": {[]string{"--replay", filepath.Join(t.TempDir(), "absent")}, 1,
			[]string{"the recording cannot be read", "no such file", "--record FILE writes one"}},
		"unknown output":  {[]string{"-o", "yaml"}, 2, []string{`there is no output format "yaml"`, "text, json"}},
		"two sources":     {[]string{"--stream-address", "a:1", "--replay", "f"}, 2, []string{"exclude each other"}},
		"backwards":       {[]string{"--replay", "f", "--speed", "-1"}, 2, []string{"--speed is -1"}},
		"no kubeconfig":   {nil, 1, []string{"127.0.0.1", "hint: "}},
		"an odd argument": {[]string{"now"}, 2, []string{`unexpected argument "now"`}},
	} {
		for _, output := range []string{"text", "json"} {
			args := append([]string{"stream"}, tc.args...)
			if name != "unknown output" {
				args = append(args, "-o", output)
			}
			got := rollcall(t, nil, args...)
			if got.status != tc.status || got.stdout != "" {
				t.Errorf("%s: exit status %d, want %d; standard output %q", name, got.status, tc.status, got.stdout)
			}
			for _, text := range tc.says {
				if !strings.Contains(got.stderr, text) {
					t.Errorf("%s does not say %q:\n%s", name, text, got.stderr)
				}
			}
		}
	}
}

// A first record that is cut short, or of another version, is an error and prints nothing; nor does it leave a recording
// that keeps the same command from being tried again.
func TestStreamUnusable(t *testing.T) {
	for name, tc := range map[string]struct{ body, says string }{
		"cut short":       {`{"kind":"snapshot","seq":1,"ser`, "error: "},
		"another version": {`{"kind":"snapshot","seq":1,"server":{"version":2,"program":"v9"}}` + "\n", "speaks version 2"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tc.body) }))
		t.Cleanup(server.Close)
		recording := filepath.Join(t.TempDir(), "recording")
		for range 2 {
			got := rollcall(t, nil, "stream", "--stream-address", server.Listener.Addr().String(), "--once", "-o", "json", "--record", recording)
			if got.status != 1 || got.stdout != "" || !strings.Contains(got.stderr, tc.says) || strings.Contains(got.stderr, "exists") {
				t.Errorf("%s: exit status %d, said %q and %q", name, got.status, got.stdout, got.stderr)
			}
		}
		if _, err := os.Stat(recording); !os.IsNotExist(err) {
			t.Errorf("%s: a recording is left: %v", name, err)
		}
	}
}
