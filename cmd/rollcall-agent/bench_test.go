package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/readiness"
)

// late is how long the namespace of the late static pod is missing. With what a kubelet takes to try again (10 to 15 s) it is
// about as long as a failed first try lasts on a real node, 60 to 90 s (facts/static-pods.md).
const late = 60 * time.Second

const scriptCondition = "example.com/WaitForMirrors"

// BenchmarkRelease holds nodes for a static pod whose mirror comes late, with the agent and then with the script, and reports
// what each costs and how late each is. Each has the machine to itself: on a real node the other nodes' runners take no CPU.
func BenchmarkRelease(b *testing.B) {
	kubectl, err := livecluster.Tool(b.Context(), b.TempDir(), "kubectl")
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("PATH", filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	for _, nodes := range []int{1, 20} {
		for _, runner := range []runner{
			{"agent", readiness.DefaultCondition, agentOn},
			{"script", scriptCondition, scriptOn},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, runner.name), func(b *testing.B) {
				for i := range b.N {
					newRelease(b, runner, nodes, fmt.Sprintf("%s-%d-%d", runner.name, nodes, i)).run()
				}
			})
		}
	}
}

// A runner releases one node each.
type runner struct {
	name      string
	condition string // what it writes on the Node
	command   func(r *release, node *livecluster.Machine) []string
}

func agentOn(r *release, node *livecluster.Machine) []string {
	return []string{binary, "--standalone", "--node-name", node.Name, "--kubeconfig", r.config, "--boot-id-file", r.boot,
		"--pods-api-socket", filepath.Join(node.Root, "pods-api", "pods-api.sock"), "--manifests", node.StaticPods}
}

func scriptOn(_ *release, node *livecluster.Machine) []string {
	return []string{"testdata/wait-for-mirrors.sh", node.Name, node.StaticPods, scriptCondition}
}

// A release is a runner on nodes that it has to release.
type release struct {
	b         *testing.B
	runner    runner
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	namespace string // where the late static pod is, made late
	nodes     []*livecluster.Machine
	config    string // kubeconfig of the runner, through the counting proxy
	boot      string // file with the boot id

	mu       sync.Mutex
	requests int
	times    map[string]map[string]time.Time // what was seen when, by node
}

func newRelease(b *testing.B, by runner, nodes int, name string) *release {
	r := &release{b: b, runner: by, cluster: livecluster.Shared(b), namespace: name, times: map[string]map[string]time.Time{}}
	r.client = kubernetes.NewForConfigOrDie(r.cluster.Config())
	r.config, r.boot = r.countingProxy(), filepath.Join(b.TempDir(), "boot_id")
	if err := os.WriteFile(r.boot, []byte("boot-1"), 0o600); err != nil {
		b.Fatal(err)
	}
	for i := range nodes {
		node := livecluster.Node{Name: fmt.Sprintf("%s-%d", name, i), BootID: "boot-1", Taints: []string{readiness.TaintKey + "=:NoSchedule"}}
		machine, err := r.cluster.AddNode(b.Context(), node)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = r.cluster.KillNode(context.Background(), node.Name) })
		writeManifest(b, machine.StaticPods, "early", "kube-system", "10m")
		writeManifest(b, machine.StaticPods, "late", name, "10m")
		r.nodes = append(r.nodes, machine)
	}
	return r
}

// countingProxy stands before the API server and counts the runner's requests.
func (r *release) countingProxy() string {
	server, err := url.Parse(r.cluster.Config().Host)
	if err != nil {
		r.b.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.FlushInterval = -1 // watches
	if proxy.Transport, err = rest.TransportFor(r.cluster.Config()); err != nil {
		r.b.Fatal(err)
	}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.requests++
		r.mu.Unlock()
		request.Header.Del("Authorization") // the proxy has rights of its own
		proxy.ServeHTTP(w, request)
	}))
	front.EnableHTTP2 = true
	front.StartTLS()
	r.b.Cleanup(front.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: front.URL, CertificateAuthorityData: []byte(pemOf(front))}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "none"} // without any, kubectl asks for one
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(r.b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		r.b.Fatal(err)
	}
	return file
}

// run starts the runner on every node, lets it wait, makes the namespace, and reports.
func (r *release) run() {
	ctx, cancel := context.WithTimeout(r.b.Context(), 10*time.Minute)
	defer cancel()
	r.observe(ctx)
	var commands []*exec.Cmd
	for _, machine := range r.nodes {
		commands = append(commands, r.start(ctx, r.runner.command(r, machine)))
	}
	time.Sleep(late)
	_, err := r.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
	if err != nil {
		r.b.Fatal(err)
	}
	r.await(ctx, "released")
	for _, command := range commands {
		_ = command.Process.Signal(syscall.SIGTERM) // a script has ended
	}
	r.report(commands)
}

func (r *release) start(ctx context.Context, command []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.config, "HOME="+r.b.TempDir())
	if err := cmd.Start(); err != nil {
		r.b.Fatal(err)
	}
	return cmd
}

// observe notes when the last mirror and the condition of each node are first seen.
func (r *release) observe(ctx context.Context) {
	pods, err := r.client.CoreV1().Pods(r.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		r.b.Fatal(err)
	}
	nodes, err := r.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		r.b.Fatal(err)
	}
	go follow(pods, func(pod *corev1.Pod) { r.note("mirror", pod.Spec.NodeName) })
	go follow(nodes, func(node *corev1.Node) {
		c := readiness.ConditionOf(node, r.runner.condition)
		if strings.HasPrefix(node.Name, r.namespace+"-") && c != nil && c.Status == corev1.ConditionTrue {
			r.note("released", node.Name)
		}
	})
}

func follow[T any](w watch.Interface, see func(T)) {
	for event := range w.ResultChan() {
		if object, ok := event.Object.(T); ok {
			see(object)
		}
	}
}

func (r *release) note(what, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times[what] == nil {
		r.times[what] = map[string]time.Time{}
	}
	if r.times[what][node].IsZero() {
		r.times[what][node] = time.Now()
	}
}

func (r *release) await(ctx context.Context, what string) {
	for ctx.Err() == nil {
		r.mu.Lock()
		seen := len(r.times[what])
		r.mu.Unlock()
		if seen >= len(r.nodes) {
			return
		}
		time.Sleep(20 * time.Millisecond) // how long a runner takes is what is measured
	}
	r.b.Fatalf("%s: %v", what, ctx.Err())
}

// report gives the runner's figures, per node.
func (r *release) report(commands []*exec.Cmd) {
	var cpu time.Duration
	var memory int64
	for _, cmd := range commands {
		_ = cmd.Wait()
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		memory = max(memory, usage.Maxrss)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var late []time.Duration
	for _, machine := range r.nodes {
		late = append(late, r.times["released"][machine.Name].Sub(r.times["mirror"][machine.Name]))
	}
	slices.Sort(late)
	nodes := float64(len(r.nodes))
	for unit, value := range map[string]float64{
		"requests/node":      float64(r.requests) / nodes,
		"cpu-ms/node":        float64(cpu.Milliseconds()) / nodes,
		"peak-MB":            float64(memory) / 1024,
		"median-ms-to-True":  float64(late[len(late)/2].Milliseconds()),
		"slowest-ms-to-True": float64(late[len(late)-1].Milliseconds()),
	} {
		r.b.ReportMetric(value, unit)
	}
}
