package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/readiness"
)

// newArrival is an occasion with one new node, "mine", of which nothing is published yet.
func (l *lab) newArrival() *occasion {
	l.Helper()
	o := &occasion{lab: l, namespace: fmt.Sprintf("arrival-%d", occasions.Add(1))}
	o.node("mine", map[string]any{
		"spec":   map[string]any{"taints": []any{taint(readiness.TaintKey)}},
		"status": map[string]any{"nodeInfo": map[string]any{"bootID": boot}},
	})
	return o
}

// startAgent starts the agent of the node "mine", whose manifest directory is empty.
func (o *occasion) startAgent(kubeconfig string, standalone bool) *liverollcall.Program {
	o.Helper()
	bootID := filepath.Join(o.TempDir(), "boot_id")
	o.must(os.WriteFile(bootID, []byte(boot+"\n"), 0o600))
	p, err := o.programs().Start(liverollcall.Agent, "agent-of-"+o.namespace, "--kubeconfig", kubeconfig, "--node-name", o.nodeName("mine"),
		"--identity", o.namespace, "--boot-id-file", bootID, "--pods-api-socket=", "--manifests", o.TempDir(), fmt.Sprintf("--standalone=%t", standalone))
	o.must(err)
	o.Cleanup(p.Stop)
	return p
}

// published waits until what the Node bears was published by the agent that was started for it.
func (o *occasion) published(node string) {
	o.Helper()
	o.eventually("the agent of "+node+" publishes", func(ctx context.Context) (bool, error) {
		object, err := o.client.CoreV1().Nodes().Get(ctx, o.nodeName(node), metav1.GetOptions{})
		if err != nil || object.Annotations[domain.StaticPods] == "" {
			return false, err
		}
		_, by, err := readiness.Decode(object.Annotations[domain.StaticPods])
		return by == o.namespace, err
	})
}

// forge publishes something else in the agent's place.
func (o *occasion) forge(node string) {
	o.Helper()
	expected := readiness.Expected{Source: "manifests", BootID: boot, Observed: time.Now(), Pods: []readiness.StaticPod{{Namespace: "a", Name: "b"}}}
	forged, err := expected.Encode("forger")
	o.must(err)
	o.patchNode(o.nodeName(node), map[string]any{"metadata": map[string]any{"annotations": map[string]any{domain.StaticPods: forged}}})
}

// touch changes the Node's version and nothing that matters.
func (l *lab) touch(node string) {
	l.patchNode(node, map[string]any{"metadata": map[string]any{"labels": map[string]any{"example.com/touched": fmt.Sprint(time.Now().UnixNano())}}})
}

func (o *occasion) forgetCondition(node string) {
	o.Helper()
	gone := []any{map[string]any{"$patch": "delete", "type": readiness.DefaultCondition}}
	o.patchNode(o.nodeName(node), map[string]any{"status": map[string]any{"conditions": gone}}, "status")
}

func (l *lab) patchNode(node string, patch map[string]any, subresource ...string) {
	l.Helper()
	text, err := json.Marshal(patch)
	if err == nil {
		_, err = l.client.CoreV1().Nodes().Patch(l.Context(), node, types.StrategicMergePatchType, text, metav1.PatchOptions{}, subresource...)
	}
	if err != nil {
		l.Error(err) // not Fatal: this is called on the door's goroutines, too
	}
}
