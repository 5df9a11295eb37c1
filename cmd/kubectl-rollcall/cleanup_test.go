package main

import (
	"strings"
	"testing"
)

const (
	podsPath  = "/api/v1/pods"
	nodesPath = "/api/v1/nodes"
)

func answer(body string) func() (int, string) { return func() (int, string) { return 200, body } }

const (
	noPods       = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{}}`
	noNodes      = `{"kind":"NodeList","apiVersion":"v1","metadata":{}}`
	markedPod    = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"namespace":"shop","name":"web","uid":"1","annotations":{"rollcall.dev/at-risk":"{}","other":"x"}}}]}`
	agentPod     = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"namespace":"rollcall-system","name":"rollcall-agent-x","labels":{"app.kubernetes.io/name":"rollcall","app.kubernetes.io/component":"agent"}}}]}`
	publishedOn  = `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"n1","uid":"2","annotations":{"rollcall.dev/static-pods":"{}"}},"spec":{"taints":[{"key":"readiness.k8s.io/StaticPodsMirrored","effect":"NoSchedule"}]},"status":{"conditions":[{"type":"readiness.example.com/StaticPodsMirrored","status":"False"},{"type":"Ready","status":"True"}]}}]}`
	heldLease    = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"rollcall-controller","namespace":"rollcall-system"},"spec":{"holderIdentity":"rollcall-controller-a_1","leaseDurationSeconds":15,"renewTime":"2999-01-01T00:00:00.000000Z"}}`
	expiredLease = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"rollcall-controller","namespace":"rollcall-system"},"spec":{"holderIdentity":"rollcall-controller-a_1","leaseDurationSeconds":15,"renewTime":"2001-01-01T00:00:00.000000Z"}}`
)

// Nothing is removed unless it is asked for, and while nobody writes it again: the server here takes no writes.
func TestCleanupRefuses(t *testing.T) {
	const found = "1 annotation on pods, 1 annotation on nodes, 1 condition, 0 records of losses, "
	for name, tc := range map[string]struct {
		pods, nodes, lease string
		args               []string
		status             int
		stdout, error      string
	}{
		"nothing there":        {noPods, noNodes, "", nil, exitOK, "rollcall left nothing in this cluster", ""},
		"not confirmed":        {markedPod, publishedOn, "", nil, exitUsage, found + "0 Leases", "nothing was removed"},
		"dry run":              {markedPod, publishedOn, expiredLease, []string{"--dry-run"}, exitOK, found + "1 Lease", ""},
		"names held nodes":     {noPods, publishedOn, "", []string{"--dry-run"}, exitOK, "the readiness taint stays on 1 node: n1", ""},
		"another condition":    {noPods, publishedOn, "", []string{"--dry-run", "--condition", "x/y"}, exitOK, "1 annotation on nodes, 0 conditions", ""},
		"controller runs":      {markedPod, noNodes, heldLease, []string{"--yes"}, exitError, "1 Lease", "the controller rollcall-controller-a_1 holds the Lease"},
		"agent runs":           {agentPod, publishedOn, "", []string{"--yes"}, exitError, "1 condition", "1 agent would write it again (rollcall-system/rollcall-agent-x)"},
		"forced, not removed":  {markedPod, noNodes, heldLease, []string{"--yes", "--force"}, exitError, "1 Lease", "not all could be removed"},
		"yes and dry run":      {noPods, noNodes, "", []string{"--yes", "--dry-run"}, exitUsage, "", "contradict each other"},
		"malformed lease":      {noPods, noNodes, "", []string{"--lease", "x"}, exitUsage, "", "malformed --lease"},
		"unexpected arguments": {noPods, noNodes, "", []string{"n1"}, exitUsage, "", `unexpected argument "n1"`},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]func() (int, string){podsPath: answer(tc.pods), nodesPath: answer(tc.nodes)}
			if tc.lease != "" {
				answers[leasePath] = answer(tc.lease)
			}
			r := rollcall(t, strings.NewReader(""), append([]string{"cleanup", "--server", apiServer(t, answers)}, tc.args...)...)
			if r.status != tc.status || !strings.Contains(r.stdout, tc.stdout) || !strings.Contains(r.stderr, tc.error) {
				t.Errorf("status %d, want %d\nstdout: %s\nstderr: %s", r.status, tc.status, r.stdout, r.stderr)
			}
			if (tc.status == exitOK) != (r.stderr == "") {
				t.Errorf("stderr: %q", r.stderr)
			}
		})
	}
}
