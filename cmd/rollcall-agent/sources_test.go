package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/kubelet"
	"github.com/rollcall-dev/rollcall/readiness/manifest"
)

// Static pods of files, of a URL, none, a directory that is not there and is filled late, an edited manifest, one that is
// removed: what the kubelet knows is published within two seconds.
func TestPublishedIsWhatTheKubeletKnows(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		l := newLab(t, livecluster.Node{Name: "files"})
		l.agent()
		l.published()
		l.manifest("proxy", "kube-system", "100m")
		before := l.within("kube-system/proxy-files=100m")
		l.manifest("proxy", "kube-system", "300m")
		after := l.within("kube-system/proxy-files=300m")
		if before.Pods[0].Hash == "" || before.Pods[0].Hash == after.Pods[0].Hash {
			t.Errorf("hash %q became %q", before.Pods[0].Hash, after.Pods[0].Hash)
		}
		if after.Source != kubelet.PodsAPIName {
			t.Errorf("the source is %s", after.Source)
		}
		if err := os.Remove(filepath.Join(l.machine.StaticPods, "proxy.yaml")); err != nil {
			t.Fatal(err)
		}
		l.within()
	})
	t.Run("a URL", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, manifestOf("apiserver", "kube-system", "200m"))
		}))
		t.Cleanup(server.Close)
		l := newLab(t, livecluster.Node{Name: "url", StaticPodURL: server.URL})
		l.agent()
		l.within("kube-system/apiserver-url=200m")
	})
	t.Run("an absent directory, filled late", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "etc", "manifests")
		l := newLab(t, livecluster.Node{Name: "absent", StaticPods: dir})
		l.agent()
		l.within()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		writeManifest(t, dir, "late", "kube-system", "50m")
		l.within("kube-system/late-absent=50m")
	})
}

// The agent outlives a restart of the kubelet in the same boot, sees what changed meanwhile, and after a reboot what was
// published before counts for nothing until it is published again.
func TestRestartAndReboot(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "restart"})
	l.manifest("proxy", "kube-system", "100m")
	a := l.agent()
	l.within("kube-system/proxy-restart=100m")

	l.kill()
	a.says("PodsAPI")
	l.manifest("proxy", "kube-system", "400m")
	l.published("kube-system/proxy-restart=100m") // as the machine still runs it
	l.start("boot-1")
	l.within("kube-system/proxy-restart=400m")

	l.kill()
	a.end()
	l.start("boot-2")
	eventually(t, "the older boot counts for nothing", func() (bool, string) {
		set := readiness.Published(l.node())
		return set.Unknown != "", set.Unknown
	})
	l.agent()
	if set := l.published("kube-system/proxy-restart=400m"); set.BootID != "boot-2" {
		t.Errorf("the boot is %s", set.BootID)
	}
}

// An agent that comes before the kubelet, its Node and its socket, waits for them.
func TestAgentComesFirst(t *testing.T) {
	l := newMachine(t, livecluster.Node{Name: "early"})
	home := filepath.Join(l.cluster.Dir(), "nodes", "early")
	l.machine = &livecluster.Machine{Root: filepath.Join(home, "root"), StaticPods: filepath.Join(home, "static")}
	a := l.agent()
	a.says("there is no Node early")
	l.start("boot-1")
	l.manifest("proxy", "kube-system", "100m")
	eventually(t, "published by the socket", func() (bool, string) {
		set := readiness.Published(l.node())
		return set.Source == kubelet.PodsAPIName && describe(set.Pods) == "kube-system/proxy-early=100m", set.Source + describe(set.Pods)
	})
}

// Without the socket the directory decides: what the kubelet ignores is published with the reason, an absent directory is
// no answer, unless it may be absent.
func TestManifestDirectory(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "directory"})
	dir := filepath.Join(t.TempDir(), "manifests")
	a := l.agent("--pods-api-socket=", "--manifests", dir)
	a.says("no such file")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.published()
	writeManifest(t, dir, "proxy", "kube-system", "100m")
	// What cannot be read keeps nobody from reading the rest.
	if err := os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "list.yaml"), []byte("apiVersion: v1\nkind: List\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the files that are ignored", func() (bool, string) {
		set := readiness.Published(l.node())
		ok := set.Source == manifest.Source && describe(set.Pods) == "kube-system/proxy-directory=100m" && len(set.Ignored) == 2 &&
			set.Ignored[0].File == "list.yaml" && set.Ignored[1].File == "loop.yaml"
		return ok, set.Unknown + describe(set.Pods)
	})
	a.end()
	l.agent("--pods-api-socket=", "--manifests", filepath.Join(dir, "nowhere"), "--manifests-optional")
	l.published()
}

// The kubelet's /pods over TLS, with a token of which the kubelet asks the API server. Its first answer counts after twenty
// seconds.
func TestKubeletPods(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "pods"})
	l.manifest("proxy", "kube-system", "100m")
	ca, other, token := filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "other.crt"), filepath.Join(t.TempDir(), "token")
	write := func(file, content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	write(ca, string(l.cluster.Config().CAData))
	write(other, pemOf(server))
	write(token, "wrong\n")
	address := fmt.Sprintf("https://127.0.0.1:%d/pods", l.node().Status.DaemonEndpoints.KubeletEndpoint.Port)
	ask := []string{"--pods-api-socket=", "--manifests=", "--kubelet-pods-url", address, "--kubelet-token-file", token}
	// A kubelet that another authority vouches for is not believed.
	impostor := l.agent(append(ask, "--kubelet-ca-file", other)...)
	impostor.says("certificate signed by unknown authority")
	impostor.end()
	a := l.agent(append(ask, "--kubelet-ca-file", ca)...)
	a.says("(401 Unauthorized): it needs the right to get nodes/pods")
	write(token, l.token("without-rights"))
	a.says("(403 Forbidden): it needs the right to get nodes/pods")
	l.grant("with-rights", "system:kubelet-api-admin")
	write(token, l.token("with-rights"))
	if set := l.published("kube-system/proxy-pods=100m"); set.Source != readiness.KubeletPods || set.Pods[0].Hash == "" {
		t.Errorf("got %+v", set)
	}
}

// token is one of a new account.
func (l *lab) token(account string) string {
	l.t.Helper()
	accounts := l.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err := accounts.Create(l.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	answer, err := accounts.CreateToken(l.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return answer.Status.Token
}

// grant gives the account the rights of the role.
func (l *lab) grant(account, role string) {
	l.t.Helper()
	_, err := l.client.RbacV1().ClusterRoleBindings().Create(l.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}},
	}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
}

// Before kube-proxy runs nothing answers at the address of the cluster's service, only at the API server's own.
func TestAddressOfTheAPI(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "early"})
	l.manifest("proxy", "kube-system", "100m")
	nobody := l.kubeconfig(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cluster.Server = "https://127.0.0.1:1" })
	l.agent("--kubeconfig", nobody, "--api-server", l.cluster.Config().Host)
	l.published("kube-system/proxy-early=100m")
}

// The agent goes on through an outage of the API server and publishes what changed meanwhile.
func TestOutageOfTheAPI(t *testing.T) {
	l := newLab(t, livecluster.Node{Name: "outage"})
	server, err := url.Parse(l.cluster.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	door := newDoor(t, server.Host)
	config := l.kubeconfig(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.Server = "https://" + door.address
	})
	a := l.agent("--kubeconfig", config)
	l.published()
	door.shut()
	l.manifest("proxy", "kube-system", "100m")
	l.kubeletKnows("kube-system/proxy-outage=100m")
	a.says("connection refused")
	door.open(t)
	start := time.Now()
	l.published("kube-system/proxy-outage=100m")
	t.Logf("published %s after the API server came back", time.Since(start).Round(time.Millisecond))
	if strings.Count(a.stderr.String(), "connection refused") > 10 {
		t.Error("the outage is said over and over")
	}
}
