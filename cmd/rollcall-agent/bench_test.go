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

// late is how long the namespace of the late static pod is missing. With what a kubelet takes to try again (10 to 15 s on
// these, 60 to 90 s on real ones) it is about as long as a failed first try lasts on a real node.
const late = 30 * time.Second

const scriptCondition = "example.com/WaitForMirrors"

// BenchmarkRelease holds nodes for a static pod whose mirror comes late, with the agent and with the script side by side
// on the same nodes, and reports what each costs and how late each is. It needs kubectl in the PATH.
func BenchmarkRelease(b *testing.B) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		b.Fatalf("the script that the agent is compared with needs kubectl: %v", err)
	}
	for _, nodes := range []int{1, 20} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for i := range b.N {
				newRace(b, nodes, fmt.Sprintf("race-%d-%d", nodes, i)).run()
			}
		})
	}
}

// A race is the agent and the script on the same nodes.
type race struct {
	b         *testing.B
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	namespace string // where the late static pod is, made late
	nodes     []*livecluster.Machine
	config    string // kubeconfig of both runners, through the counting proxy

	mu       sync.Mutex
	requests map[string]int                  // by runner
	times    map[string]map[string]time.Time // what was seen when, by node
}

func newRace(b *testing.B, nodes int, name string) *race {
	r := &race{b: b, cluster: livecluster.Shared(b), namespace: name, requests: map[string]int{}, times: map[string]map[string]time.Time{}}
	r.client = kubernetes.NewForConfigOrDie(r.cluster.Config())
	r.config = r.countingProxy()
	for i := range nodes {
		node := livecluster.Node{Name: fmt.Sprintf("%s-%d", name, i), BootID: "boot-1"}
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

// countingProxy stands before the API server and counts requests by the runner that its user agent names.
func (r *race) countingProxy() string {
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
		runner, _, _ := strings.Cut(request.UserAgent(), "/")
		r.mu.Lock()
		r.requests[runner]++
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

// run starts both, lets them wait, makes the namespace, and reports.
func (r *race) run() {
	ctx, cancel := context.WithTimeout(r.b.Context(), 10*time.Minute)
	defer cancel()
	r.observe(ctx)
	boot := filepath.Join(r.b.TempDir(), "boot_id")
	if err := os.WriteFile(boot, []byte("boot-1"), 0o600); err != nil {
		r.b.Fatal(err)
	}
	var agents, scripts []*exec.Cmd
	for _, machine := range r.nodes {
		agents = append(agents, r.start(exec.CommandContext(ctx, binary, "--standalone", "--node-name", machine.Name, "--kubeconfig", r.config,
			"--boot-id-file", boot, "--pods-api-socket", filepath.Join(machine.Root, "pods-api", "pods-api.sock"), "--manifests", machine.StaticPods)))
		scripts = append(scripts, r.start(exec.CommandContext(ctx, "testdata/wait-for-mirrors.sh", machine.Name, machine.StaticPods, scriptCondition)))
	}
	r.await(ctx, "held", len(r.nodes))
	time.Sleep(late)
	_, err := r.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
	if err != nil {
		r.b.Fatal(err)
	}
	r.await(ctx, "rollcall-agent", len(r.nodes))
	r.await(ctx, "kubectl", len(r.nodes))
	for _, agent := range agents {
		_ = agent.Process.Signal(syscall.SIGTERM)
	}
	r.report("rollcall-agent", agents)
	r.report("kubectl", scripts)
}

func (r *race) start(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.config, "HOME="+r.b.TempDir())
	cmd.Stderr = os.Stderr
	if cmd.Args[0] == binary {
		cmd.Stderr = nil
	}
	if err := cmd.Start(); err != nil {
		r.b.Fatal(err)
	}
	return cmd
}

// observe notes when the last mirror and the conditions are first seen.
func (r *race) observe(ctx context.Context) {
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
		if !strings.HasPrefix(node.Name, r.namespace+"-") {
			return
		}
		for runner, condition := range map[string]string{"rollcall-agent": readiness.DefaultCondition, "kubectl": scriptCondition} {
			c := readiness.ConditionOf(node, condition)
			switch {
			case c != nil && c.Status == corev1.ConditionTrue:
				r.note(runner, node.Name)
			case c != nil && c.Reason == readiness.MirrorMissing && strings.HasSuffix(c.Message, "of "+r.namespace+"/late-"+node.Name):
				r.note("held", node.Name)
			}
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

func (r *race) note(what, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times[what] == nil {
		r.times[what] = map[string]time.Time{}
	}
	if r.times[what][node].IsZero() {
		r.times[what][node] = time.Now()
	}
}

func (r *race) await(ctx context.Context, what string, nodes int) {
	for ctx.Err() == nil {
		r.mu.Lock()
		seen := len(r.times[what])
		r.mu.Unlock()
		if seen >= nodes {
			return
		}
		time.Sleep(20 * time.Millisecond) // how long a runner takes is what is measured
	}
	r.b.Fatalf("%s: %v", what, ctx.Err())
}

// report gives a runner's figures, per node.
func (r *race) report(runner string, commands []*exec.Cmd) {
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
		late = append(late, r.times[runner][machine.Name].Sub(r.times["mirror"][machine.Name]))
	}
	slices.Sort(late)
	nodes := float64(len(r.nodes))
	for unit, value := range map[string]float64{
		"requests/node":      float64(r.requests[runner]) / nodes,
		"cpu-ms/node":        float64(cpu.Milliseconds()) / nodes,
		"peak-MB":            float64(memory) / 1024,
		"median-ms-to-True":  float64(late[len(late)/2].Milliseconds()),
		"slowest-ms-to-True": float64(late[len(late)-1].Milliseconds()),
	} {
		r.b.ReportMetric(value, runner+"-"+unit)
	}
}
