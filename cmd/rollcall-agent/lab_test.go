package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/readiness"
)

// binary is the built program; the tests here run it beside real kubelets.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rollcall-agent")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := 1
	if binary, err = livecluster.Executable(context.Background(), dir, "./cmd/rollcall-agent"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// A lab is one node of the shared cluster with what a test needs around it.
type lab struct {
	t       *testing.T
	cluster *livecluster.Cluster
	client  kubernetes.Interface
	spec    livecluster.Node
	machine *livecluster.Machine
	boot    string // file of the machine's boot id
}

// newLab starts a node. Its boot id is where the agent's --boot-id-file looks.
func newLab(t *testing.T, spec livecluster.Node) *lab {
	t.Helper()
	l := newMachine(t, spec)
	l.start("boot-1")
	return l
}

// newMachine is newLab before the machine is switched on.
func newMachine(t *testing.T, spec livecluster.Node) *lab {
	t.Helper()
	l := &lab{t: t, cluster: livecluster.Shared(t), spec: spec, boot: filepath.Join(t.TempDir(), "boot_id")}
	l.client = kubernetes.NewForConfigOrDie(l.cluster.Config())
	if err := os.WriteFile(l.boot, []byte("boot-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cluster.KillNode(context.Background(), spec.Name) })
	return l
}

// start starts the machine, again after a kill, in the boot of that id.
func (l *lab) start(boot string) {
	l.t.Helper()
	l.spec.BootID = boot
	if err := os.WriteFile(l.boot, []byte(boot+"\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
	machine, err := l.cluster.AddNode(l.t.Context(), l.spec)
	if err != nil {
		l.t.Fatal(err)
	}
	l.machine = machine
}

func (l *lab) kill() {
	l.t.Helper()
	if err := l.cluster.KillNode(l.t.Context(), l.spec.Name); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) socket() string { return filepath.Join(l.machine.Root, "pods-api", "pods-api.sock") }

// manifest writes a static pod of that name into the node's directory.
func (l *lab) manifest(name, namespace, cpu string) {
	l.t.Helper()
	writeManifest(l.t, l.machine.StaticPods, name, namespace, cpu)
}

func writeManifest(t testing.TB, dir, name, namespace, cpu string) {
	t.Helper()
	// Written beside it and renamed: a kubelet reads whatever lies in the directory.
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, []byte(manifestOf(name, namespace, cpu)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

func manifestOf(name, namespace, cpu string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\nspec: {hostNetwork: true, containers: [{name: c, image: \"i:1\", resources: {requests: {cpu: %s}}}]}\n", name, namespace, cpu)
}

// running is the program in a process of its own.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// agent starts the program for the lab's node; later flags win over the usual ones.
func (l *lab) agent(flags ...string) *running {
	l.t.Helper()
	return l.agentTo(nil, flags...)
}

func (l *lab) agentTo(stderr *os.File, flags ...string) *running {
	l.t.Helper()
	usual := []string{
		"--node-name", l.spec.Name, "--kubeconfig", l.cluster.Kubeconfig(), "--boot-id-file", l.boot,
		"--pods-api-socket", l.socket(), "--manifests", l.machine.StaticPods,
	}
	a := &running{t: l.t, cmd: exec.Command(binary, append(usual, flags...)...)}
	a.cmd.Stderr = &a.stderr
	if stderr != nil {
		a.cmd.Stderr = stderr
	}
	if err := a.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
		if l.t.Failed() {
			l.t.Logf("the agent of %s said:\n%s", l.spec.Name, a.stderr.String())
		}
	})
	return a
}

// end asks the agent to stop and returns its exit status.
func (a *running) end() int {
	a.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Fatal(err)
	}
	_ = a.cmd.Wait()
	return a.cmd.ProcessState.ExitCode()
}

func (a *running) says(what string) {
	a.t.Helper()
	eventually(a.t, "the agent says "+what, func() (bool, string) {
		return strings.Contains(a.stderr.String(), what), a.stderr.String()
	})
}

func eventually(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		ok, now := holds()
		last = now
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; last seen: %s", what, err, last)
	}
}

func (l *lab) node() *corev1.Node {
	l.t.Helper()
	node, err := l.client.CoreV1().Nodes().Get(l.t.Context(), l.spec.Name, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return node
}

// published waits until the Node bears exactly these pods, as namespace/name=cpu, and returns the set.
func (l *lab) published(pods ...string) readiness.Expected {
	l.t.Helper()
	var got readiness.Expected
	eventually(l.t, fmt.Sprintf("published %v", pods), func() (bool, string) {
		got = readiness.Published(l.node())
		return got.Unknown == "" && describe(got.Pods) == strings.Join(pods, " "), got.Unknown + " " + describe(got.Pods)
	})
	return got
}

func describe(pods []readiness.StaticPod) string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Key()+"="+pod.CPU.String())
	}
	return strings.Join(names, " ")
}

// kubeletKnows waits until the kubelet itself lists exactly these static pods.
func (l *lab) kubeletKnows(pods ...string) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("the kubelet knows %v", pods), func() (bool, string) {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/pods", l.machine.Port))
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err.Error()
		}
		expected, err := readiness.DecodeKubeletPods(data)
		return err == nil && describe(expected.Pods) == strings.Join(pods, " "), describe(expected.Pods)
	})
}

// within fails where the set is published later than two seconds after the kubelet knows it.
func (l *lab) within(pods ...string) readiness.Expected {
	l.t.Helper()
	l.kubeletKnows(pods...)
	known := time.Now()
	set := l.published(pods...)
	if late := time.Since(known); late > 2*time.Second {
		l.t.Errorf("published %s after the kubelet knew it", late)
	}
	return set
}

// condition waits for the Node's condition.
func (l *lab) condition(status corev1.ConditionStatus, reason string) *corev1.NodeCondition {
	l.t.Helper()
	var got *corev1.NodeCondition
	eventually(l.t, fmt.Sprintf("condition %s %s", status, reason), func() (bool, string) {
		got = readiness.ConditionOf(l.node(), readiness.DefaultCondition)
		if got == nil {
			return false, "no condition"
		}
		return got.Status == status && got.Reason == reason, fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message)
	})
	return got
}

// namespace makes a namespace.
func (l *lab) namespace(name string) {
	l.t.Helper()
	_, err := l.client.CoreV1().Namespaces().Create(l.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
}

// kubeconfig writes a copy of the cluster's kubeconfig, changed by change.
func (l *lab) kubeconfig(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) string {
	l.t.Helper()
	config, err := clientcmd.LoadFromFile(l.cluster.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		for _, user := range config.AuthInfos {
			change(cluster, user)
		}
	}
	file := filepath.Join(l.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		l.t.Fatal(err)
	}
	return file
}
