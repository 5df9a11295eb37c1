package docs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

// exitFound is the plugin's exit status where something is lost or not mirrored, which is what it was asked.
const exitFound = 3

// A reader follows the documents on a real control plane, with real kubelets on a fake container runtime.
type reader struct {
	*testing.T
	cluster  *livecluster.Cluster
	client   kubernetes.Interface
	binaries *liverollcall.Binaries
	ran      map[string]bool
}

// The commands of the documents that need no running image work as they stand, in the order of the documents.
func TestCommandsWork(t *testing.T) {
	r := newReader(t)
	r.phase(prepares.phase)
	r.run("kubectl apply --server-side -f deploy/manifests/install.yaml")
	r.defineRule()
	controller, err := r.binaries.Controller(t.Context(), r.cluster, "--leader-elect-namespace=rollcall-system", "--stream-address=")
	r.must(err)
	t.Cleanup(controller.Stop)
	r.interrupt("spot-1")
	r.phase(works.phase)

	controller.Stop()
	r.run("kubectl delete daemonset,deployment -n rollcall-system --all --cascade=foreground")
	r.phase(removed.phase)
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{T: t, cluster: livecluster.Shared(t), ran: map[string]bool{}}
	r.client = kubernetes.NewForConfigOrDie(r.cluster.Config())
	var err error
	r.binaries, err = liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller, liverollcall.Plugin)
	r.must(err)
	_, err = livecluster.Tool(t.Context(), r.binaries.Dir, "kubectl")
	r.must(err)
	// The readers of the documents have these two.
	for name, taints := range map[string][]string{"spot-1": nil, "worker-1": {"readiness.k8s.io/StaticPodsMirrored=pending:NoSchedule"}} {
		_, err := r.cluster.AddNode(t.Context(), livecluster.Node{Name: name, Taints: taints, NoWait: len(taints) > 0})
		r.must(err)
	}
	return r
}

func (r *reader) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// defineRule makes the API server know the Node Readiness Controller's rule.
func (r *reader) defineRule() {
	r.Helper()
	r.run("kubectl apply -f deploy/testdata/nodereadinessrules.yaml")
	r.run("kubectl wait --for=condition=Established crd/nodereadinessrules.readiness.node.x-k8s.io --timeout=1m")
}

// interrupt has a pod of namespace shop lost with the node, and another at risk.
func (r *reader) interrupt(node string) {
	r.Helper()
	r.run("kubectl create namespace shop")
	for _, name := range []string{"lost", "at-risk"} {
		r.eventually("a pod in the new namespace", func() error {
			_, err := r.client.CoreV1().Pods("shop").Create(r.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	r.run("kubectl taint node " + node + " spot-interruption=true:NoSchedule")
	for _, name := range []string{"lost", "at-risk"} {
		r.eventually("the mark of "+name, func() error {
			pod, err := r.client.CoreV1().Pods("shop").Get(r.Context(), name, metav1.GetOptions{})
			if err == nil && pod.Annotations["rollcall.dev/at-risk"] == "" {
				return errors.New("not marked")
			}
			return err
		})
	}
	r.run("kubectl delete pod -n shop lost --grace-period=0 --force")
	r.eventually("the record of the loss", func() error {
		out, err := r.shell("kubectl get podloss -n shop -o jsonpath={.items[*].status.state}").Output()
		if err == nil && !strings.Contains(string(out), "Closed") {
			return fmt.Errorf("states are %q", out)
		}
		return err
	})
}

func (r *reader) eventually(what string, works func() error) {
	r.Helper()
	var last error
	if wait.PollUntilContextTimeout(r.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = works()
		return last == nil, nil
	}) != nil {
		r.Fatalf("%s: %v", what, last)
	}
}

// phase runs the commands of one phase, each once, in the order of the documents.
func (r *reader) phase(phase int) {
	r.Helper()
	for _, c := range shown(r.T) {
		if commands[c.text].phase == phase && !r.ran[c.text] {
			r.ran[c.text] = true
			r.run(c.text)
		}
	}
}

// run has a shell run the command.
func (r *reader) run(text string) {
	r.Helper()
	out, err := r.shell(text).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitFound) {
		r.Errorf("$ %s\n%v\n%s", text, err, out)
		return
	}
	r.Logf("$ %s\n%s", text, out)
}

// shell runs a command from the repository's root, with the cluster's kubeconfig and the built programs.
func (r *reader) shell(text string) *exec.Cmd {
	shell := exec.CommandContext(r.Context(), "bash", "-o", "pipefail", "-c", text)
	shell.Dir = ".."
	shell.Env = append(os.Environ(), "KUBECONFIG="+r.cluster.Kubeconfig(), "PATH="+r.binaries.Dir+":"+os.Getenv("PATH"))
	return shell
}
