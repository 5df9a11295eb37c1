package main

import (
	"strings"
	"testing"
)

const (
	podsPath  = "/api/v1/pods"
	nodesPath = "/api/v1/nodes"
	allLeases = "/apis/coordination.k8s.io/v1/leases"
	ourLeases = "/apis/coordination.k8s.io/v1/namespaces/rollcall-system/leases"
)

func answer(body string) func() (int, string) { return func() (int, string) { return 200, body } }

const (
	noPods       = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{}}`
	noNodes      = `{"kind":"NodeList","apiVersion":"v1","metadata":{}}`
	markedPod    = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"namespace":"shop","name":"web","uid":"1","annotations":{"rollcall.dev/at-risk":"{}","other":"x"}}}]}`
	agentPod     = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"namespace":"rollcall-system","name":"rollcall-agent-x","labels":{"app.kubernetes.io/name":"rollcall","app.kubernetes.io/component":"agent"}}}]}`
	publishedOn  = `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"n1","uid":"2","annotations":{"rollcall.dev/static-pods":"{}"}},"spec":{"taints":[{"key":"readiness.k8s.io/StaticPodsMirrored","effect":"NoSchedule"}]},"status":{"conditions":[{"type":"readiness.example.com/StaticPodsMirrored","status":"False"},{"type":"Ready","status":"True"}]}}]}`
	ownedOn      = `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"n1","uid":"2","managedFields":[{"manager":"rollcall","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","subresource":"status","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"example.com/Mirrored\"}":{".":{},"f:status":{},"f:type":{}}}}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","subresource":"status","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}}}}]},"status":{"conditions":[{"type":"example.com/Mirrored","status":"True"},{"type":"Ready","status":"True"}]}}]}`
	noLeases     = `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{}}`
	sidecarLease = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"rollcall-controller","namespace":"kube-system"},"spec":{"holderIdentity":"karpenter-a_1","leaseDurationSeconds":15,"renewTime":"2999-01-01T00:00:00.000000Z"}}`
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
		"written by rollcall":  {noPods, ownedOn, "", []string{"--dry-run"}, exitOK, "0 annotations on nodes, 1 condition,", ""},
		"sidecar runs":         {markedPod, noNodes, sidecarLease, []string{"--yes"}, exitError, "1 Lease", "the controller karpenter-a_1 holds the Lease in namespace kube-system"},
		"two Leases, one held": {markedPod, noNodes, expiredLease + "," + sidecarLease, []string{"--yes"}, exitError, "2 Leases", "karpenter-a_1 holds the Lease"},
		"Lease of a namespace": {markedPod, noNodes, expiredLease, []string{"--dry-run", "--lease", "rollcall-system/rollcall-controller"}, exitOK, "1 Lease", ""},
		"Lease of another":     {markedPod, noNodes, expiredLease, []string{"--dry-run", "--lease", "x/rollcall-controller"}, exitError, "", "listing the Leases"},
		"controller runs":      {markedPod, noNodes, heldLease, []string{"--yes"}, exitError, "1 Lease", "the controller rollcall-controller-a_1 holds the Lease"},
		"agent runs":           {agentPod, publishedOn, "", []string{"--yes"}, exitError, "1 condition", "1 agent would write it again (rollcall-system/rollcall-agent-x)"},
		"forced, not removed":  {markedPod, noNodes, heldLease, []string{"--yes", "--force"}, exitError, "1 Lease", "not all could be removed"},
		"yes and dry run":      {noPods, noNodes, "", []string{"--yes", "--dry-run"}, exitUsage, "", "contradict each other"},
		"malformed lease":      {noPods, noNodes, "", []string{"--lease", "x/"}, exitUsage, "", "malformed --lease"},
		"unexpected arguments": {noPods, noNodes, "", []string{"n1"}, exitUsage, "", `unexpected argument "n1"`},
	} {
		t.Run(name, func(t *testing.T) {
			leases := strings.Replace(noLeases, `"metadata":{}`, `"metadata":{},"items":[`+tc.lease+`]`, 1)
			answers := map[string]func() (int, string){podsPath: answer(tc.pods), nodesPath: answer(tc.nodes), allLeases: answer(leases), ourLeases: answer(leases)}
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
