package proof

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// With the role of deploy/impersonation beside the chart without its rights for the agent, the agent does its work as its own node and can be no
// other node.
func TestAgentAsItsOwnNode(t *testing.T) {
	l := newLab(t, "rbac: {agent: false}\ncontroller: {mode: None}\nagent: {standalone: true}\n")
	text, err := os.ReadFile(path(t, "deploy/impersonation/agent.yaml"))
	l.must(err)
	for _, object := range decode(t, text) {
		l.install(object)
	}
	o := l.newArrival()
	o.node("other", nil)
	who := l.bound(system, "rollcall-agent", o.nodeName("mine"))
	d, kubeconfig := l.through(who)
	l.impersonate(kubeconfig, "system:node:"+o.nodeName("mine"))
	p := o.startAgent(kubeconfig, true)
	o.published("mine")
	l.condition(o.nodeName("mine"), "True", "NoStaticPods", true)
	o.forge("mine")
	l.told("default", o.nodeName("mine"), "StaticPodsOverwritten")
	p.Stop()
	l.noneRefused("rollcall-agent as its node", d)

	for user, node := range map[string]string{"system:node:" + o.nodeName("other"): "other", "system:node:" + o.nodeName("mine"): "other", "": "mine"} {
		_, kubeconfig := l.through(who)
		l.impersonate(kubeconfig, user)
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		l.must(err)
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().Patch(t.Context(), o.nodeName(node), types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"rollcall.dev/static-pods":"{}"}}}`), metav1.PatchOptions{DryRun: dry}, "status")
		if err == nil {
			t.Errorf("as %q it writes to node %s", user, node)
			continue
		}
		t.Logf("as %q, to node %s: %v", user, node, err)
	}
}

// impersonate changes the kubeconfig so that its user acts as another.
func (l *lab) impersonate(kubeconfig, user string) {
	l.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	l.must(err)
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	l.must(clientcmd.WriteToFile(*config, kubeconfig))
}
