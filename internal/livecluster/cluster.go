// Package livecluster runs real clusters for tests and the demo: it builds demo/cluster's binary once, starts clusters
// with it, adds and kills nodes, and stops what it started, also when this process crashes. It knows the binary only by
// its command line and imports nothing of Kubernetes but the client.
package livecluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options choose how a cluster is started.
type Options struct {
	// Progress hears what takes long; nil means standard error.
	Progress io.Writer
	// Optimised runs binaries built with optimisation, for benchmarks.
	Optimised bool
	// Detached lets the cluster outlive this process; 'cluster down --dir DIR' ends it.
	Detached bool
}

// Cluster is a running control plane. Its methods may be called by several goroutines.
type Cluster struct {
	binary, dir          string
	kubeconfig, auditLog string
	config               *rest.Config
	supervisor           *exec.Cmd
	lifeline             io.Closer
	stopOnce             sync.Once
}

// Start builds the binary if need be and starts a cluster without nodes. It returns when pods can be created.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	binary, err := Binary(ctx, o.Progress, o.Optimised)
	if err != nil {
		return nil, err
	}
	// Short, because sockets live below it and their paths have a limit of 108 bytes.
	dir, err := os.MkdirTemp("", "rollcall-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{binary: binary, dir: dir}
	if err := c.start(o); err != nil {
		c.Stop()
		return nil, fmt.Errorf("starting a cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(o Options) error {
	c.supervisor = exec.Command(c.binary, "supervise", "--dir", c.dir)
	// A group of its own: a Ctrl-C reaches this process, which then stops the cluster by closing the lifeline.
	c.supervisor.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	c.supervisor.Stderr = &stderr
	lifeline, err := c.supervisor.StdinPipe()
	if err != nil {
		return err
	}
	c.lifeline = lifeline
	stdout, err := c.supervisor.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.supervisor.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		_ = c.supervisor.Wait()
		return errors.New(strings.TrimSpace(stderr.String()))
	}
	if o.Detached {
		if _, err := lifeline.Write([]byte{'d'}); err != nil {
			return err
		}
	}
	var status struct{ Kubeconfig, AuditLog string }
	if err := json.Unmarshal(line, &status); err != nil {
		return fmt.Errorf("reading the supervisor's status %q: %w", line, err)
	}
	c.kubeconfig, c.auditLog = status.Kubeconfig, status.AuditLog
	c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	return err
}

// Stop ends every process of the cluster and removes its directory. It may be called more than once.
func (c *Cluster) Stop() {
	c.stopOnce.Do(func() {
		if c.lifeline != nil {
			_ = c.supervisor.Process.Signal(syscall.SIGTERM)
			_ = c.lifeline.Close()
			_ = c.supervisor.Wait()
		}
		_ = os.RemoveAll(c.dir)
	})
}

// Kubeconfig returns the path of an administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir returns the directory of the cluster, for 'cluster … --dir'.
func (c *Cluster) Dir() string { return c.dir }

// Command returns the command line that runs the cluster's binary.
func (c *Cluster) Command() string { return c.binary }

// Config returns an administrator's client configuration without a client-side rate limit, the caller's to change.
func (c *Cluster) Config() *rest.Config {
	config := rest.CopyConfig(c.config)
	config.QPS = -1
	return config
}

// Node says what a machine is made of. Zero values take the binary's defaults (2 cores, 4Gi).
type Node struct {
	Name   string
	CPU    int
	Memory string
	Pods   int
	// StaticPods is the kubelet's manifest directory, there or not; empty means one of the cluster's own.
	StaticPods   string
	StaticPodURL string
	BootID       string
	ProviderID   string
	Labels       map[string]string
	Taints       []string // key=value:effect
	// APIQPS is the kubelet's kubeAPIQPS, with which its kubeAPIBurst is 1; zero means no bound.
	APIQPS int
	NoWait bool // do not wait until the Node is Ready
}

// Machine is a node that runs.
type Machine struct {
	Name       string
	StaticPods string // manifest directory
	Root       string // the kubelet's root directory
	Port       int    // of the kubelet's server on 127.0.0.1
	Pid        int    // of the kubelet
}

// AddNode starts a kubelet and waits until its Node is Ready and can be scheduled to. A name that was killed before comes
// back on the same directories.
func (c *Cluster) AddNode(ctx context.Context, n Node) (*Machine, error) {
	args := []string{"node", "add", n.Name}
	for flag, value := range map[string]string{
		"--memory": n.Memory, "--static-pods": n.StaticPods, "--static-pod-url": n.StaticPodURL,
		"--boot-id": n.BootID, "--provider-id": n.ProviderID,
	} {
		if value != "" {
			args = append(args, flag+"="+value)
		}
	}
	if n.CPU != 0 {
		args = append(args, fmt.Sprintf("--cpu=%d", n.CPU))
	}
	if n.Pods != 0 {
		args = append(args, fmt.Sprintf("--pods=%d", n.Pods))
	}
	for key, value := range n.Labels {
		args = append(args, "--label="+key+"="+value)
	}
	for _, taint := range n.Taints {
		args = append(args, "--taint="+taint)
	}
	if n.APIQPS != 0 {
		args = append(args, fmt.Sprintf("--kube-api-qps=%d", n.APIQPS))
	}
	if n.NoWait {
		args = append(args, "--no-wait")
	}
	out, err := c.run(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	var added struct {
		Spec struct{ StaticPods string }
		Root string
		Port int
		Pid  int
	}
	if err := json.Unmarshal(out, &added); err != nil {
		return nil, fmt.Errorf("reading %q: %w", out, err)
	}
	return &Machine{Name: n.Name, StaticPods: added.Spec.StaticPods, Root: added.Root, Port: added.Port, Pid: added.Pid}, nil
}

// KillNode ends a machine as a power cut does: its kubelet gets SIGKILL, the Node object stays.
func (c *Cluster) KillNode(ctx context.Context, name string) error {
	if _, err := c.run(ctx, "node", "kill", name); err != nil {
		return fmt.Errorf("killing node %s: %w", name, err)
	}
	return nil
}

func (c *Cluster) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.binary, append(args, "--dir", c.dir)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// OptimisedEnv, when not empty, makes Shared run a control plane that was built with optimisation.
const OptimisedEnv = "ROLLCALL_CLUSTER_OPTIMISED"

// shared is the cluster of this test process.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// TB is the part of testing.TB that Shared uses; the package does not import testing, since the demo uses it too.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Shared returns the one cluster of this test process, started on first use. It stops by itself when the process ends.
// Tests that share it keep to namespaces and nodes of their own.
func Shared(t TB) *Cluster {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Minute)
		defer cancel()
		shared.cluster, shared.err = Start(ctx, Options{Optimised: os.Getenv(OptimisedEnv) != ""})
	})
	if shared.err != nil {
		t.Fatalf("no cluster to test on: %v", shared.err)
	}
	return shared.cluster
}

// Executable builds the command in package (a path below the repository's root, such as "./cmd/rollcall-controller") into
// a temporary directory of the caller's and returns its path.
func Executable(ctx context.Context, dir, pkg string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, filepath.Base(pkg))
	return binary, compile(ctx, root, binary, pkg)
}

// Tool builds one of the modules below tools/, such as "kubectl", into a directory of the caller's and returns the binary's path.
func Tool(ctx context.Context, dir, name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, name)
	return binary, compile(ctx, filepath.Join(root, "tools", name), binary, ".")
}

// compile builds a package of the module in that directory, in pure Go, as it is shipped. It has go run copy what it would
// run: go keeps that in its cache, while go build links anew each time, and ten packages of tests want the same programs.
func compile(ctx context.Context, module, binary, pkg string) error {
	cmd := goCommand(ctx, module, "run", "-exec", "cp", pkg, binary)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("the build of %s was cut off: %w", filepath.Base(binary), context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", filepath.Base(binary), err, out)
	}
	return nil
}
