package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// controlPlane is etcd, API server, scheduler and controller manager, and the files they need.
type controlPlane struct {
	dir        string
	pki        *pki
	server     string // URL of the API server
	kubeconfig string // of an administrator
	client     kubernetes.Interface
	egress     net.Listener
	processes  []*process
}

// auditPolicy records who writes what: one line of metadata for each write, nothing for reads.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// startControlPlane starts everything and returns when the cluster answers and its controllers work. On an error it has
// stopped what it had started.
func startControlPlane(ctx context.Context, dir string, lifeline *os.File) (_ *controlPlane, err error) {
	c := &controlPlane{dir: dir, kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	c.server = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	if c.egress, err = serveEgress(dir); err != nil {
		return nil, err
	}
	etcdURL := fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	for _, start := range []struct {
		name string
		args []string
	}{
		{"etcd", []string{
			"--data-dir=" + filepath.Join(dir, "etcd"), "--client-url=" + etcdURL, fmt.Sprintf("--peer-url=https://127.0.0.1:%d", ports[1]),
			"--ca=" + c.pki.crt("ca"), "--cert=" + c.pki.crt("etcd"), "--key=" + c.pki.keyFile("etcd"),
		}},
		{"kube-apiserver", c.apiServerArgs(etcdURL, ports[2])},
		{"kube-controller-manager", c.controllerManagerArgs(ports[3])},
		{"kube-scheduler", []string{
			"--kubeconfig=" + c.kubeconfigOf("kube-scheduler"), "--leader-elect=false",
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[4]), "--cert-dir=" + filepath.Join(dir, "scheduler"),
		}},
	} {
		p, err := startProcess(dir, lifeline, start.name, start.name, start.args...)
		if err != nil {
			return nil, err
		}
		c.processes = append(c.processes, p)
		if start.name == "kube-apiserver" {
			if err := c.waitFor(ctx, "the API server to be ready", c.apiServerReady); err != nil {
				return nil, err
			}
		}
	}
	return c, c.waitFor(ctx, "the controller manager to serve accounts", c.controllersWork)
}

// writeFiles makes certificates, kubeconfigs and the audit policy.
func (c *controlPlane) writeFiles() error {
	p, err := newPKI(filepath.Join(c.dir, "pki"))
	if err != nil {
		return fmt.Errorf("making the certificate authority: %w", err)
	}
	c.pki = p
	for _, id := range []struct{ name, user, group string }{
		{"etcd", "etcd", ""},
		{"kube-apiserver", "kube-apiserver", ""},
		{"kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"},
		{"service-accounts", "service-accounts", ""},
		{"admin", "rollcall-demo-admin", "system:masters"},
		{"kube-controller-manager", "system:kube-controller-manager", ""},
		{"kube-scheduler", "system:kube-scheduler", ""},
	} {
		if err := p.issue(id.name, id.user, id.group); err != nil {
			return err
		}
	}
	if err := p.kubeconfig(c.kubeconfig, c.server, "admin"); err != nil {
		return err
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := p.kubeconfig(c.kubeconfigOf(name), c.server, name); err != nil {
			return err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, "audit-policy.yaml"), []byte(auditPolicy), 0o600)
}

func (c *controlPlane) kubeconfigOf(name string) string {
	return filepath.Join(c.dir, name+".kubeconfig")
}

// apiServerArgs leaves the default admission plugins on and adds NodeRestriction, as kubeadm does.
func (c *controlPlane) apiServerArgs(etcdURL string, port int) []string {
	return []string{
		"--etcd-servers=" + etcdURL, "--etcd-cafile=" + c.pki.crt("ca"),
		"--etcd-certfile=" + c.pki.crt("etcd"), "--etcd-keyfile=" + c.pki.keyFile("etcd"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--client-ca-file=" + c.pki.crt("ca"),
		"--tls-cert-file=" + c.pki.crt("kube-apiserver"), "--tls-private-key-file=" + c.pki.keyFile("kube-apiserver"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.crt("service-accounts"),
		"--service-account-signing-key-file=" + c.pki.keyFile("service-accounts"),
		"--audit-policy-file=" + filepath.Join(c.dir, "audit-policy.yaml"), "--audit-log-path=" + filepath.Join(c.dir, "audit.log"),
		"--egress-selector-config-file=" + egressFile(c.dir), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.pki.crt("kube-apiserver-kubelet-client"),
		"--kubelet-client-key=" + c.pki.keyFile("kube-apiserver-kubelet-client"),
		"--profiling=false",
	}
}

func (c *controlPlane) controllerManagerArgs(port int) []string {
	return []string{
		"--kubeconfig=" + c.kubeconfigOf("kube-controller-manager"), "--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.pki.keyFile("service-accounts"), "--root-ca-file=" + c.pki.crt("ca"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + filepath.Join(c.dir, "controller-manager"),
	}
}

// waitFor polls until the condition holds, a component ends, or two minutes are over.
func (c *controlPlane) waitFor(ctx context.Context, what string, condition func(context.Context) bool) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, p := range c.processes {
			select {
			case <-p.done:
				return false, fmt.Errorf("%s ended: %v; the end of its log:\n%s", p.name, p.err, logTail(p.log))
			default:
			}
		}
		return condition(ctx), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

func (c *controlPlane) apiServerReady(ctx context.Context) bool {
	_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err == nil
}

// controllersWork is true once pods can be created: their namespace has its service account.
func (c *controlPlane) controllersWork(ctx context.Context) bool {
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err == nil
}

func (c *controlPlane) stop() {
	for i := len(c.processes) - 1; i >= 0; i-- {
		c.processes[i].kill()
	}
	if c.egress != nil {
		_ = c.egress.Close()
	}
}

// logTail returns the last lines of a log, for an error message.
func logTail(path string) string {
	const most = 2000
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(data) > most {
		data = data[len(data)-most:]
	}
	return string(data)
}
