package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// patience bounds every wait.
const patience = time.Minute

// asProcess makes the test binary the controller: a process of its own can be killed.
const asProcess = "ROLLCALL_TEST_AS_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A process is a controller that runs, with its log as JSON.
type process struct {
	*exec.Cmd
	health string
	ended  chan struct{}

	mu  sync.Mutex
	log []map[string]any // guarded by mu
}

// startProcess starts a controller and waits until it says where it serves health.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], append([]string{"--log-format=json", "--health-address=127.0.0.1:0"}, args...)...), ended: make(chan struct{})}
	p.Env = append(os.Environ(), asProcess+"=1")
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.read(stderr)
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("log of %d:\n%s", p.Process.Pid, p.text())
		}
	})
	eventually(t, "the controller serves health", func(context.Context) (bool, error) {
		for _, line := range p.lines("serving health") {
			p.health = fmt.Sprint(line["address"])
		}
		return p.health != "", nil
	})
	return p
}

func (p *process) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			line = map[string]any{"msg": lines.Text()}
		}
		p.mu.Lock()
		p.log = append(p.log, line)
		p.mu.Unlock()
	}
}

// lines returns the records whose message contains the text.
func (p *process) lines(msg string) (found []map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.log {
		if strings.Contains(fmt.Sprint(line["msg"]), msg) {
			found = append(found, line)
		}
	}
	return found
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text strings.Builder
	for _, line := range p.log {
		fmt.Fprintln(&text, line)
	}
	return text.String()
}

// stop asks the process to end, and returns its exit status.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("the controller does not stop")
	}
	return p.ProcessState.ExitCode()
}

// probe returns the status that a probe gets.
func (p *process) probe(t *testing.T, path string) int {
	t.Helper()
	response, err := http.Get("http://" + p.health + path)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// A lab is a namespace on the shared control plane.
type lab struct {
	*testing.T
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	namespace string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{T: t, cluster: livecluster.Shared(t)}
	config := l.cluster.Config()
	config.UserAgent = "test"
	l.client = kubernetes.NewForConfigOrDie(config)
	namespace, err := l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lab-"}}, metav1.CreateOptions{})
	l.must(err)
	l.namespace = namespace.Name
	return l
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// flags connect a controller to the cluster, with a Lease of the lab's own.
func (l *lab) flags(more ...string) []string {
	return append([]string{"--kubeconfig=" + l.cluster.Kubeconfig(), "--leader-elect-namespace=" + l.namespace}, more...)
}

// nodeWithPod makes a Node without a machine, and a bare pod on it of the same name.
func (l *lab) nodeWithPod(name string) {
	l.Helper()
	_, err := l.client.CoreV1().Nodes().Create(l.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	l.must(err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}}
	_, err = l.client.CoreV1().Pods(l.namespace).Create(l.Context(), pod, metav1.CreateOptions{})
	l.must(err)
	l.Cleanup(func() {
		zero, ctx := int64(0), context.Background()
		_ = l.client.CoreV1().Pods(l.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		_ = l.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

func (l *lab) taint(node string, on bool) {
	l.Helper()
	patch := `{"spec":{"taints":null}}`
	if on {
		patch = `{"spec":{"taints":[{"key":"spot-interruption","value":"true","effect":"NoSchedule"}]}}`
	}
	_, err := l.client.CoreV1().Nodes().Patch(l.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	l.must(err)
}

func (l *lab) waitMark(pod string, want bool) {
	l.Helper()
	eventually(l.T, fmt.Sprintf("marker on %s: %v", pod, want), func(ctx context.Context) (bool, error) {
		p, err := l.client.CoreV1().Pods(l.namespace).Get(ctx, pod, metav1.GetOptions{})
		return err == nil && (p.Annotations[domain.AtRisk] != "") == want, err
	})
}

func (l *lab) events(reason string) int {
	l.Helper()
	list, err := l.client.CoreV1().Events(l.namespace).List(l.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	l.must(err)
	return len(list.Items)
}

// Two replicas: the leader is killed, the other takes over, and writes no mark and no Event that is there already.
func TestLeaderKilled(t *testing.T) {
	l := newLab(t)
	quick := l.flags("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms")
	before := l.markWrites()
	l.nodeWithPod(l.namespace + "-a")
	l.nodeWithPod(l.namespace + "-b")
	first := startProcess(t, quick...)
	eventually(t, "the first leads", func(context.Context) (bool, error) { return len(first.lines("leading")) > 0, nil })
	second := startProcess(t, quick...)
	eventually(t, "the second is ready", func(context.Context) (bool, error) { return second.probe(t, "/readyz") == http.StatusOK, nil })

	l.taint(l.namespace+"-a", true)
	l.waitMark(l.namespace+"-a", true)
	eventually(t, "an Event", func(context.Context) (bool, error) { return l.events("WillBeLost") == 1, nil })
	if len(second.lines("leading")) > 0 {
		t.Error("both lead")
	}
	l.must(first.Process.Kill())
	eventually(t, "the second leads", func(context.Context) (bool, error) { return len(second.lines("leading")) > 0, nil })
	l.taint(l.namespace+"-b", true)
	l.waitMark(l.namespace+"-b", true)
	eventually(t, "another Event", func(context.Context) (bool, error) { return l.events("WillBeLost") == 2, nil })
	if status := second.stop(t); status != exitOK {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	if got := l.markWrites() - before; got != 2 {
		t.Errorf("%d writes of markers, want one for each of two pods", got)
	}
	lease, err := l.client.CoordinationV1().Leases(l.namespace).Get(t.Context(), "rollcall-controller", metav1.GetOptions{})
	l.must(err)
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the Lease is not released, %s holds it", *holder)
	}
}

// A leader whose Lease another has taken stops and says so: its supervisor starts it anew, as a candidate.
func TestLeaseLost(t *testing.T) {
	l := newLab(t)
	p := startProcess(t, l.flags("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms")...)
	eventually(t, "it leads", func(context.Context) (bool, error) { return len(p.lines("leading")) > 0, nil })
	eventually(t, "it ends", func(ctx context.Context) (bool, error) {
		now := time.Now().UTC().Format(metav1.RFC3339Micro)
		thief := `{"spec":{"holderIdentity":"thief","leaseDurationSeconds":60,"renewTime":"` + now + `"}}`
		_, err := l.client.CoordinationV1().Leases(l.namespace).Patch(ctx, "rollcall-controller", types.MergePatchType, []byte(thief), metav1.PatchOptions{})
		select {
		case <-p.ended:
			return true, nil
		default:
			return false, err
		}
	})
	if status := p.ProcessState.ExitCode(); status != exitError || len(p.lines("the Lease was lost")) == 0 {
		t.Errorf("exit status %d, want %d and a message", status, exitError)
	}
}

func (l *lab) markWrites() int {
	l.Helper()
	writes, err := l.cluster.Writes("rollcall-controller/")
	l.must(err)
	return writes["patch pods/status"]
}

// An API server that cannot be reached is tried again, visibly; the process lives, is not ready, and stops when told.
func TestUnreachableServer(t *testing.T) {
	p := startProcess(t, "--kubeconfig="+aKubeconfig(t, "https://127.0.0.1:1"))
	eventually(t, "two visible tries", func(context.Context) (bool, error) {
		return len(p.lines("cannot reach the API server, trying again")) >= 2, nil
	})
	if live, ready := p.probe(t, "/healthz"), p.probe(t, "/readyz"); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("healthz %d, readyz %d, want 200 and 503", live, ready)
	}
	if status := p.stop(t); status != exitOK {
		t.Errorf("exit status %d", status)
	}
}

// A controller without the right to patch pods/status says so once, names the right, and does the rest.
func TestNoRightToMark(t *testing.T) {
	l := newLab(t)
	read := []string{"get", "list", "watch"}
	name := "limited-" + l.namespace
	_, err := l.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "batch"}, Resources: []string{"pods", "nodes", "replicationcontrollers", "replicasets", "statefulsets", "daemonsets", "jobs"}, Verbs: read},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{})
	l.must(err)
	_, err = l.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}}, metav1.CreateOptions{})
	l.must(err)
	l.nodeWithPod(l.namespace + "-a")
	l.nodeWithPod(l.namespace + "-b")
	p := startProcess(t, l.flags("--as="+name, "--leader-elect-retry-period=200ms")...)
	l.taint(l.namespace+"-a", true)
	refused := func() []map[string]any { return p.lines("not allowed to patch pods/status") }
	eventually(t, "the missing right is named", func(context.Context) (bool, error) { return len(refused()) > 0, nil })
	if msg := fmt.Sprint(refused()[0]["msg"]); !strings.Contains(msg, `verb "patch"`) || !strings.Contains(msg, `resource "pods/status"`) || !strings.Contains(msg, "ClusterRole") {
		t.Errorf("message %q", msg)
	}
	// The rest goes on: once the right is there, other nodes' pods are marked.
	l.taint(l.namespace+"-b", true)
	_, err = l.client.RbacV1().ClusterRoles().Patch(t.Context(), name, types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/rules/-","value":{"apiGroups":[""],"resources":["pods/status"],"verbs":["patch"]}}]`), metav1.PatchOptions{})
	l.must(err)
	eventually(t, "a pod is marked once that is allowed", func(ctx context.Context) (bool, error) {
		l.taint(l.namespace+"-b", false)
		l.taint(l.namespace+"-b", true)
		pod, err := l.client.CoreV1().Pods(l.namespace).Get(ctx, l.namespace+"-b", metav1.GetOptions{})
		return err == nil && pod.Annotations[domain.AtRisk] != "", err
	})
	if got := len(refused()); got != 1 {
		t.Errorf("said %d times, want once", got)
	}
	if status := p.stop(t); status != exitOK {
		t.Errorf("exit status %d", status)
	}
}

// A dry run says what it would do and writes nothing at all.
func TestDryRun(t *testing.T) {
	l := newLab(t)
	total := func() (n int) {
		writes, err := l.cluster.Writes("rollcall-controller/")
		l.must(err)
		for _, count := range writes {
			n += count
		}
		return n
	}
	before := total()
	l.nodeWithPod(l.namespace + "-a")
	p := startProcess(t, l.flags("--dry-run")...)
	l.taint(l.namespace+"-a", true)
	eventually(t, "a decision", func(context.Context) (bool, error) { return len(p.lines("dry run: a pod is marked")) > 0, nil })
	line := p.lines("dry run: a pod is marked")[0]
	if line["verdict"] != "Lost" || line["reason"] != "NoController" || line["decision"] != "would mark" || line["node"] != l.namespace+"-a" {
		t.Errorf("decision %v", line)
	}
	if status := p.stop(t); status != exitOK {
		t.Errorf("exit status %d", status)
	}
	if got := total() - before; got != 0 {
		t.Errorf("%d write requests, want none", got)
	}
}
