package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/readiness"
)

// asked is the node of this file, with a real kubelet, which asks the API server whether the agent may get its pods.
const asked = "proof-asked"

// Where the agent asks its kubelet for /pods it has one right more, which that kubelet and no door sees used: with it the
// answer is published, without it the agent says what it lacks.
func TestAgentAsksItsKubelet(t *testing.T) {
	l := newLab(t, `agent: {kubeletPodsURL: "https://127.0.0.1:10250/pods"}`)
	m, err := l.cluster.AddNode(t.Context(), livecluster.Node{Name: asked, BootID: boot})
	l.must(err)
	t.Cleanup(func() { _ = l.cluster.KillNode(context.Background(), asked) })
	ofKubelet := right{"get", "", "nodes/pods"}

	who := l.bound(system, "rollcall-agent", asked)
	d, p := l.startAsking(m, who)
	l.eventually("what the kubelet answers is published", func(ctx context.Context) (bool, error) {
		node, err := l.client.CoreV1().Nodes().Get(ctx, asked, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return readiness.Published(node).Source == readiness.KubeletPods, nil
	})
	p.Stop()
	l.noneRefused("rollcall-agent, asking its kubelet", d)
	if granted := l.rights("rollcall-agent"); !granted[ofKubelet] {
		t.Fatalf("the chart grants %s, not the right to %s", join(sorted(granted)), ofKubelet)
	}

	for _, role := range l.roles("rollcall-agent") {
		rules := rulesOf(t, role)
		i := slices.IndexFunc(rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rightsOf(rule), ofKubelet) })
		if i < 0 {
			continue
		}
		l.setRules(role, slices.Delete(slices.Clone(rules), i, i+1))
		l.may(who, rules[i], "", false)
		// Another pod's token: the kubelet remembers for minutes what it was told of the first.
		d, p := l.startAsking(m, l.bound(system, "rollcall-agent", asked))
		line := l.says(p, "the kubelet refuses /pods", "needs the right to get nodes/pods")
		p.Stop()
		l.noneRefused("rollcall-agent, refused by its kubelet", d)
		t.Logf("without the right to %s: %s", ofKubelet, excerpt(line))
	}
}

// startAsking starts the agent of the machine with /pods as its only source.
func (l *lab) startAsking(m *livecluster.Machine, who identity) (*door, *liverollcall.Program) {
	l.Helper()
	node, err := l.client.CoreV1().Nodes().Get(l.Context(), m.Name, metav1.GetOptions{})
	l.must(err)
	dir := l.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	l.must(os.WriteFile(ca, l.cluster.Config().CAData, 0o600))
	l.must(os.WriteFile(token, []byte(who.token), 0o600))
	d, kubeconfig := l.through(who)
	return d, l.startBeside(m, kubeconfig, "--pods-api-socket=", "--manifests=", "--kubelet-ca-file", ca, "--kubelet-token-file", token,
		"--kubelet-pods-url", fmt.Sprintf("https://127.0.0.1:%d/pods", node.Status.DaemonEndpoints.KubeletEndpoint.Port))
}
