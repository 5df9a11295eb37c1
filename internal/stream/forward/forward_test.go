package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/stream"
)

// lab is a namespace with a node of its own, and pods that stand for controllers.
type lab struct {
	*testing.T
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	namespace string
}

func newLab(t *testing.T, name string) *lab {
	t.Helper()
	l := &lab{t, livecluster.Shared(t), nil, name}
	l.client = kubernetes.NewForConfigOrDie(l.cluster.Config())
	_, err := l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	l.must(err)
	_, err = l.cluster.AddNode(t.Context(), livecluster.Node{Name: name})
	l.must(err)
	return l
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// pod makes a pod whose port 9790 is the given address of this machine, and waits until it runs.
func (l *lab) pod(name, address string) {
	l.Helper()
	_, port, err := net.SplitHostPort(address)
	l.must(err)
	pods := l.client.CoreV1().Pods(l.namespace)
	// The service account of a new namespace may take a moment.
	l.eventually("pod "+name+" is made", func(ctx context.Context) (bool, error) {
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"cluster.rollcall.dev/forward": fmt.Sprintf("%d:%s", stream.Port, port)}},
			Spec:       corev1.PodSpec{NodeName: l.namespace, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
		}, metav1.CreateOptions{})
		return err == nil, nil
	})
	l.eventually("pod "+name+" runs", func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, nil
	})
}

func (l *lab) eventually(what string, condition func(context.Context) (bool, error)) {
	l.Helper()
	if err := wait.PollUntilContextTimeout(l.Context(), 50*time.Millisecond, time.Minute, true, condition); err != nil {
		l.Fatalf("%s: %v", what, err)
	}
}

// held makes the Lease say who holds it.
func (l *lab) held(by string) {
	l.Helper()
	leases := l.client.CoordinationV1().Leases(l.namespace)
	lease := coordinationv1ac.Lease("roll", l.namespace).WithSpec(coordinationv1ac.LeaseSpec().WithHolderIdentity(by))
	_, err := leases.Apply(l.Context(), lease, metav1.ApplyOptions{FieldManager: "test"})
	l.must(err)
}

func (l *lab) dialer(config *rest.Config) *Dialer {
	l.Helper()
	d, err := New(config, l.namespace, "roll", stream.Port)
	l.must(err)
	return d
}

// says serves one line and then stays silent until the test ends.
func says(t *testing.T, line string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != stream.StreamPath {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, line)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// The stream comes from the pod that holds the Lease, through the API server and the kubelet, and ends when another holds
// it.
func TestFollowsTheLease(t *testing.T) {
	l := newLab(t, "forward")
	l.pod("first", says(t, "one"))
	l.pod("second", says(t, "two"))
	l.held("first_0c6d")
	d := l.dialer(l.cluster.Config())
	connection, err := d.Dial(t.Context())
	l.must(err)
	defer connection.Body.Close()
	lines := bufio.NewScanner(connection.Body)
	if !lines.Scan() || lines.Text() != "one" || connection.Peer != "forward/first" {
		t.Fatalf("%s says %q (%v), want one", connection.Peer, lines.Text(), lines.Err())
	}
	l.held("second_6a1e")
	if lines.Scan() {
		t.Fatalf("a former holder is still read: %q", lines.Text())
	}
	if err := lines.Err(); err == nil || !strings.Contains(err.Error(), "second") {
		t.Errorf("the stream ended with %v, want the new holder's name", err)
	}
	next, err := d.Dial(t.Context())
	l.must(err)
	defer next.Body.Close()
	if lines := bufio.NewScanner(next.Body); !lines.Scan() || lines.Text() != "two" {
		t.Errorf("%s says %q, want two", next.Peer, lines.Text())
	}
}

// Where something on the way does not let WebSockets through, SPDY does.
func TestWithoutWebSockets(t *testing.T) {
	l := newLab(t, "spdy")
	l.pod("first", says(t, "one"))
	l.held("first_0c6d")
	target, err := url.Parse(l.cluster.Config().Host)
	l.must(err)
	upstream := l.cluster.Config()
	upstream.NextProtos = []string{"http/1.1"} // HTTP/2 knows no upgrades
	transport, err := rest.TransportFor(upstream)
	l.must(err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	var refused, passed atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch upgrade := r.Header.Get("Upgrade"); {
		case strings.EqualFold(upgrade, "websocket"):
			refused.Add(1)
			http.Error(w, "no WebSockets here", http.StatusBadRequest)
			return
		case upgrade != "":
			passed.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	connection, err := l.dialer(&rest.Config{Host: server.URL}).Dial(t.Context())
	l.must(err)
	defer connection.Body.Close()
	if lines := bufio.NewScanner(connection.Body); !lines.Scan() || lines.Text() != "one" {
		t.Errorf("it says %q (%v), want one", lines.Text(), lines.Err())
	}
	if refused.Load() != 1 || passed.Load() != 1 {
		t.Errorf("%d WebSockets were refused and %d other upgrades passed, want 1 and 1", refused.Load(), passed.Load())
	}
}

// Each way in which there is no stream is told apart, with the way out.
func TestRefusals(t *testing.T) {
	l := newLab(t, "refusals")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	l.must(err)
	nobody := taken.Addr().String()
	l.must(taken.Close())
	as := func(user string, verbs ...rbacv1.PolicyRule) *rest.Config {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: verbs}
		_, err := l.client.RbacV1().Roles(l.namespace).Create(t.Context(), role, metav1.CreateOptions{})
		l.must(err)
		_, err = l.client.RbacV1().RoleBindings(l.namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		}, metav1.CreateOptions{})
		l.must(err)
		config := l.cluster.Config()
		config.Impersonate.UserName = user
		return config
	}
	reads := []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	}
	forwards := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"get", "create"}}
	unreachable := rest.AnonymousClientConfig(l.cluster.Config())
	unreachable.Host = "https://" + nobody

	refused := func(what string, config *rest.Config, lasting bool, words ...string) {
		t.Helper()
		l.eventually(what+" is told", func(ctx context.Context) (bool, error) { // rights take a moment
			_, err := l.dialer(config).Dial(ctx)
			var e *stream.ConnectError
			if !errors.As(err, &e) {
				return false, fmt.Errorf("%v", err)
			}
			text := e.Error() + "\n" + e.Hint()
			for _, word := range words {
				if !strings.Contains(text, word) {
					t.Logf("%s: %s", what, text)
					return false, nil
				}
			}
			if e.Lasting != lasting {
				t.Errorf("%s: lasting %t", what, e.Lasting)
			}
			return true, nil
		})
	}
	all := l.cluster.Config()
	refused("no Lease", all, false, "no controller leads", "no Lease refusals/roll", "--controller-namespace")
	l.held("")
	refused("a Lease that nobody holds", all, false, "nobody holds the Lease")
	l.held("laptop_77")
	refused("a holder outside of the cluster", all, false, `held by "laptop_77"`, "--stream-address")
	l.pod("alone", nobody)
	l.held("alone_1")
	refused("a pod that does not listen", all, false, "pod refusals/alone", "connection refused", "--stream-port")
	refused("no cluster", unreachable, false, "no cluster answers at https://127.0.0.1")
	refused("no right to read the Lease", as("stranger"), true, "may not get leases", "kubectl auth can-i")
	refused("no right to forward", as("reader", reads...), true, "may not create pods/portforward", "get and create pods/portforward")
	refused("all rights that the advice names", as("viewer", append(reads, forwards)...), false, "connection refused")
}
