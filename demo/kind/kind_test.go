// Package kind_test runs the scripts of this directory, all but the one that needs kind, against a real control plane with real
// kubelets on a fake container runtime. The programs run beside it: a fake runtime runs no image.
package kind_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

// The readiness taint as kind.yaml has it.
const readinessTaint = "readiness.k8s.io/StaticPodsMirrored=pending:NoSchedule"

// A stage is a cluster as cluster.sh makes it, and what the scripts find in the PATH.
type stage struct {
	*testing.T
	cluster  *livecluster.Cluster
	client   kubernetes.Interface
	binaries *liverollcall.Binaries
	machines map[string]*livecluster.Machine
	programs []*liverollcall.Program
}

// Everything that a reader of the scripts does, in their order; what installs and what removes, twice.
func TestScripts(t *testing.T) {
	s := newStage(t)
	s.runs("install.sh", nil, "podlosses.rollcall.dev serverside-applied", "no Node Readiness Controller")
	s.runs("install.sh", nil, "deployment.apps/rollcall-controller serverside-applied")
	stream := s.startPrograms()
	s.kubectl("cordon", "worker3") // somebody's own, which is to stay
	for range 2 {
		s.runs("interruption.sh", nil, "pod/notebook created", `"reason":"NoController"`, "Closed")
	}
	s.runs("mirror-pod.sh", nil, "another UID, the same container", "AllMirrored", "the container is still")
	s.runs("outofcpu.sh", nil, "OutOfcpu", "rollcall-demo-hidden/hog", "the same Deployment once more")
	s.runs("ui.sh", []string{"--stream-address", stream}, "no terminal here")
	for _, p := range s.programs {
		p.Stop()
	}
	// An interruption was broken off.
	s.kubectl("label", "node", "worker", "rollcall-demo/interrupted=")
	s.kubectl("taint", "node", "worker", "spot-interruption=true:NoSchedule")
	s.kubectl("cordon", "worker")
	s.runs("cleanup.sh", nil, "removed; nothing is left")
	if node, err := s.client.CoreV1().Nodes().Get(t.Context(), "worker3", metav1.GetOptions{}); err != nil || !node.Spec.Unschedulable {
		t.Errorf("the cordon of worker3 is not the demo's: %v", err)
	}
	s.kubectl("uncordon", "worker3")
	s.runs("cleanup.sh", nil, "rollcall left nothing")
	s.nothingIsLeft()
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{T: t, cluster: livecluster.Shared(t), machines: map[string]*livecluster.Machine{}}
	s.client = kubernetes.NewForConfigOrDie(s.cluster.Config())
	var err error
	s.binaries, err = liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller, liverollcall.Agent, liverollcall.Plugin)
	s.must(err)
	_, err = livecluster.Tool(t.Context(), s.binaries.Dir, "kubectl")
	s.must(err)
	staticPod, err := os.ReadFile("static-pod.yaml")
	s.must(err)
	for i, name := range []string{"worker", "worker2", "worker3"} {
		node := livecluster.Node{Name: name, StaticPods: filepath.Join(t.TempDir(), "manifests")}
		s.must(os.MkdirAll(node.StaticPods, 0o755))
		if i == 2 {
			node.Taints, node.NoWait = []string{readinessTaint}, true
			s.must(os.WriteFile(filepath.Join(node.StaticPods, "rollcall-demo.yaml"), staticPod, 0o600))
		}
		s.machines[name], err = s.cluster.AddNode(t.Context(), node)
		s.must(err)
	}
	// A command on a node works on the node's own directory, which the scripts know by the name that the kubelet gives it on kind.
	onNode := "#!/bin/sh\nnode=$1 && shift\ncase $node in\n"
	for name, machine := range s.machines {
		onNode += fmt.Sprintf("%s) directory=%s ;;\n", name, machine.StaticPods)
	}
	onNode += "esac\ncd \"$directory\" && for a; do shift; set -- \"$@\" \"$(echo \"$a\" | sed \"s|^/manifests/|$directory/|\")\"; done\nexec \"$@\"\n"
	s.must(os.WriteFile(filepath.Join(s.binaries.Dir, "on-node"), []byte(onNode), 0o700))
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// startPrograms starts what the installed pods would, and returns where the controller serves its stream.
func (s *stage) startPrograms() (stream string) {
	s.Helper()
	stream = "127.0.0.1:19790"
	controller, err := s.binaries.Controller(s.Context(), s.cluster, "--leader-elect-namespace=rollcall-system", "--stream-address="+stream)
	s.must(err)
	s.programs = append(s.programs, controller)
	s.Cleanup(controller.Stop)
	for name, machine := range s.machines {
		node, err := s.client.CoreV1().Nodes().Get(s.Context(), name, metav1.GetOptions{})
		s.must(err)
		agent, err := s.binaries.Agent(s.cluster, machine, node.Status.NodeInfo.BootID)
		s.must(err)
		s.programs = append(s.programs, agent)
		s.Cleanup(agent.Stop)
	}
	return stream
}

// kubectl does what a person does.
func (s *stage) kubectl(args ...string) {
	s.Helper()
	command := exec.CommandContext(s.Context(), filepath.Join(s.binaries.Dir, "kubectl"), append(args, "--kubeconfig", s.cluster.Kubeconfig())...)
	if out, err := command.CombinedOutput(); err != nil {
		s.Fatalf("kubectl %q: %v\n%s", args, err, out)
	}
}

// runs runs a script to its end and looks for what it must have shown.
func (s *stage) runs(script string, args []string, wants ...string) {
	s.Helper()
	started := time.Now()
	ctx, cancel := context.WithTimeout(s.Context(), 6*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", append([]string{script}, args...)...)
	command.Env = append(os.Environ(), "PATH="+s.binaries.Dir+":"+os.Getenv("PATH"), "KUBECONFIG="+s.cluster.Kubeconfig(),
		"ON_NODE="+filepath.Join(s.binaries.Dir, "on-node"), "STATIC_POD_PATH=/manifests", "WAIT=no")
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		s.Fatalf("%s: %v\n%s", script, err, out.String())
	}
	for _, want := range wants {
		if !strings.Contains(out.String(), want) {
			s.Errorf("%s does not say %q:\n%s", script, want, out.String())
		}
	}
	s.Logf("%s ends after %.0f s\n%s", script, time.Since(started).Seconds(), out.String())
}

// nothingIsLeft counts on the API server, whatever the scripts say.
func (s *stage) nothingIsLeft() {
	s.Helper()
	for name, machine := range s.machines {
		node, err := s.client.CoreV1().Nodes().Get(s.Context(), name, metav1.GetOptions{})
		s.must(err)
		for _, borne := range []map[string]string{node.Annotations, node.Labels} {
			for key := range borne {
				if strings.Contains(key, "rollcall") {
					s.Errorf("%s bears %s", name, key)
				}
			}
		}
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return strings.HasSuffix(string(c.Type), "StaticPodsMirrored") }) {
			s.Errorf("%s has the condition", name)
		}
		if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "spot-interruption" }) || node.Spec.Unschedulable {
			s.Errorf("%s is still tainted or cordoned", name)
		}
		for _, file := range []string{"rollcall-demo-hog.yaml", "rollcall-demo-walk.yaml"} {
			if _, err := os.Stat(filepath.Join(machine.StaticPods, file)); !errors.Is(err, os.ErrNotExist) {
				s.Errorf("%s of %s: %v", file, name, err)
			}
		}
	}
	spaces, err := s.client.CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for _, space := range spaces.Items {
		if strings.HasPrefix(space.Name, "rollcall") {
			s.Errorf("namespace %s is %s", space.Name, space.Status.Phase)
		}
	}
}
