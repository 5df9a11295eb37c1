package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// supervisor owns one cluster: its directory, its processes and the socket on which it takes orders.
type supervisor struct {
	dir      string
	plane    *controlPlane
	lifeline *os.File      // reading end, handed to every child
	hold     *os.File      // writing end, open as long as this process lives
	stop     chan struct{} // closed when somebody orders the end
	stopOnce sync.Once

	mu    sync.Mutex
	nodes map[string]*node
}

// node is one kubelet, running or killed.
type node struct {
	Spec    nodeSpec `json:"spec"`
	Port    int      `json:"port"` // of the kubelet's read-only server
	Root    string   `json:"root"` // the kubelet's root directory
	Pid     int      `json:"pid"`
	Running bool     `json:"running"`
	process *process
}

// nodeSpec is what a node is made of.
type nodeSpec struct {
	Name string `json:"name"`
	// CPU in cores, Memory as a quantity, Pods as the most that run at once.
	CPU    int    `json:"cpu"`
	Memory string `json:"memory"`
	Pods   int    `json:"pods"`
	// StaticPods is the directory of the static pods; an absent one is legal. Empty: a directory of the cluster's own.
	StaticPods   string            `json:"staticPods"`
	StaticPodURL string            `json:"staticPodURL,omitempty"`
	BootID       string            `json:"bootID"`
	ProviderID   string            `json:"providerID,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Taints       []string          `json:"taints,omitempty"` // key=value:effect
	// APIQPS and APIBurst bound the kubelet's requests: its kubeAPIQPS and kubeAPIBurst.
	APIQPS   int `json:"apiQPS"`
	APIBurst int `json:"apiBurst"`
	// NoWait returns once the kubelet runs, without waiting for its Node to be Ready.
	NoWait bool `json:"noWait,omitempty"`
}

// status is the supervisor's answer to GET /status.
type status struct {
	Ready      bool    `json:"ready"`
	Error      string  `json:"error,omitempty"`
	Pid        int     `json:"pid"`
	Server     string  `json:"server,omitempty"`
	Kubeconfig string  `json:"kubeconfig,omitempty"`
	AuditLog   string  `json:"auditLog,omitempty"`
	Nodes      []*node `json:"nodes"`
}

func socketOf(dir string) string { return filepath.Join(dir, "supervisor.sock") }

// supervise runs a cluster in dir until a signal, an order, or the end of its lifeline (standard input, unless detached).
func supervise(dir string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	s := &supervisor{dir: dir, stop: make(chan struct{}), nodes: map[string]*node{}}
	var err error
	if s.lifeline, s.hold, err = os.Pipe(); err != nil {
		return err
	}
	defer s.hold.Close()
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", socketOf(dir))
	if err != nil {
		return fmt.Errorf("listening for orders: %w", err)
	}
	go s.watchParent(cancel)
	if s.plane, err = startControlPlane(ctx, dir, s.lifeline); err != nil {
		return err
	}
	defer s.stopAll()
	server := &http.Server{Handler: s.handler(), BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	if err := json.NewEncoder(os.Stdout).Encode(s.status()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.stop:
	}
	return nil
}

// watchParent cancels when the parent closes this process's standard input, as it does when it crashes. A parent that
// wants the cluster to outlive it sends one byte first.
func (s *supervisor) watchParent(cancel func()) {
	one := make([]byte, 1)
	if n, _ := os.Stdin.Read(one); n == 0 {
		cancel()
	}
}

func (s *supervisor) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if n.Running {
			n.process.kill()
		}
	}
	s.plane.stop()
}

func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.status(), nil) })
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, struct{}{}, nil)
		s.stopOnce.Do(func() { close(s.stop) })
	})
	mux.HandleFunc("POST /nodes", func(w http.ResponseWriter, r *http.Request) {
		var spec nodeSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			answer(w, nil, err)
			return
		}
		n, err := s.addNode(r.Context(), spec)
		answer(w, n, err)
	})
	mux.HandleFunc("DELETE /nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, s.killNode(r.PathValue("name")))
	})
	return mux
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func (s *supervisor) status() *status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &status{
		Ready: true, Pid: os.Getpid(), Server: s.plane.server, Kubeconfig: s.plane.kubeconfig,
		AuditLog: filepath.Join(s.dir, "audit.log"), Nodes: []*node{},
	}
	for _, n := range s.nodes {
		if n.Running {
			select {
			case <-n.process.done:
				n.Running = false
			default:
			}
		}
		st.Nodes = append(st.Nodes, n)
	}
	sort.Slice(st.Nodes, func(i, j int) bool { return st.Nodes[i].Spec.Name < st.Nodes[j].Spec.Name })
	return st
}

// addNode starts a kubelet and waits until its Node is Ready. A name that was killed before starts again on the same
// directories, as a machine does after a reboot.
func (s *supervisor) addNode(ctx context.Context, spec nodeSpec) (*node, error) {
	n, err := s.startKubelet(spec)
	if err != nil || spec.NoWait {
		return n, err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case <-n.process.done:
			return false, fmt.Errorf("its kubelet ended: %v; the end of its log:\n%s", n.process.err, logTail(n.process.log))
		default:
		}
		object, err := s.plane.client.CoreV1().Nodes().Get(ctx, spec.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && nodeReady(object), nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for node %s to be Ready: %w", spec.Name, err)
	}
	return n, nil
}

// directoryOf is the name of a node's directory: short, because the kubelet's sockets live below it and their paths have a
// limit of 108 bytes.
func directoryOf(node string) string {
	const limit = 40
	if len(node) <= limit {
		return node
	}
	return fmt.Sprintf("%s-%x", node[:limit-9], sha256.Sum256([]byte(node)))[:limit]
}

func (s *supervisor) startKubelet(spec nodeSpec) (*node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.Name == "" {
		return nil, errors.New("a node needs a name")
	}
	if old, ok := s.nodes[spec.Name]; ok && old.Running {
		select {
		case <-old.process.done:
		default:
			return nil, fmt.Errorf("node %s runs already; 'cluster node kill %s' ends it", spec.Name, spec.Name)
		}
	}
	home := filepath.Join(s.dir, "nodes", directoryOf(spec.Name))
	root := filepath.Join(home, "root")
	if spec.StaticPods == "" {
		spec.StaticPods = filepath.Join(home, "static")
		if err := os.MkdirAll(spec.StaticPods, 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	if spec.BootID == "" {
		spec.BootID = fmt.Sprintf("boot-%d", time.Now().UnixNano())
	}
	kubeconfig := filepath.Join(home, "kubeconfig")
	if err := s.plane.pki.issue("node-"+spec.Name, "system:node:"+spec.Name, "system:nodes"); err != nil {
		return nil, err
	}
	if err := s.plane.pki.kubeconfig(kubeconfig, s.plane.server, "node-"+spec.Name); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	p, err := startProcess(s.dir, s.lifeline, "kubelet-"+spec.Name, "kubelet", kubeletArgs(spec, kubeconfig, s.plane.pki.crt("ca"), root, ports)...)
	if err != nil {
		return nil, err
	}
	n := &node{Spec: spec, Port: ports[0], Root: root, Pid: p.cmd.Process.Pid, Running: true, process: p}
	s.nodes[spec.Name] = n
	return n, nil
}

func kubeletArgs(spec nodeSpec, kubeconfig, clientCA, root string, ports []int) []string {
	args := []string{
		"--kubeconfig=" + kubeconfig, "--client-ca-file=" + clientCA, "--name=" + spec.Name, "--root-dir=" + root,
		fmt.Sprintf("--read-only-port=%d", ports[0]), fmt.Sprintf("--port=%d", ports[1]),
		fmt.Sprintf("--cpu=%d", spec.CPU), "--memory=" + spec.Memory, fmt.Sprintf("--pods=%d", spec.Pods),
		"--static-pods=" + spec.StaticPods, "--static-pod-url=" + spec.StaticPodURL,
		"--boot-id=" + spec.BootID, "--provider-id=" + spec.ProviderID,
		fmt.Sprintf("--kube-api-qps=%d", spec.APIQPS), fmt.Sprintf("--kube-api-burst=%d", spec.APIBurst),
	}
	for key, value := range spec.Labels {
		args = append(args, "--label="+key+"="+value)
	}
	for _, taint := range spec.Taints {
		args = append(args, "--taint="+taint)
	}
	return args
}

// killNode ends a machine: its kubelet gets SIGKILL and the Node object stays as it is.
func (s *supervisor) killNode(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.nodes[name]
	if !ok || !n.Running {
		return fmt.Errorf("no node %s runs in this cluster", name)
	}
	n.process.kill()
	n.Running = false
	return nil
}

// ask sends one order to the supervisor of the cluster in dir.
func ask(ctx context.Context, dir, method, path string, body io.Reader, into any) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socketOf(dir))
	}}}
	request, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, body)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no cluster answers in %s ('cluster up --dir %s' starts one): %w", dir, dir, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(response.Body)
		return errors.New(string(message))
	}
	return json.NewDecoder(response.Body).Decode(into)
}
