package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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
	"github.com/rollcall-dev/rollcall/internal/livepane"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/internal/stream"
)

// record has the stream of TestLiveView written to a file, as tui/testdata/storm.ndjson was.
var record = flag.String("record", "", "write the stream of the live view's test to a new file")

// patience bounds every wait for the cluster.
const patience = 2 * time.Minute

// A stage is a cluster with nodes on which things happen.
type stage struct {
	*testing.T
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	binaries  *liverollcall.Binaries
	namespace string // of the controllers
}

func newStage(t *testing.T, namespace string) *stage {
	t.Helper()
	s := &stage{T: t, cluster: livecluster.Shared(t), namespace: namespace}
	s.client = kubernetes.NewForConfigOrDie(s.cluster.Config())
	var err error
	s.binaries, err = liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller)
	s.must(err)
	for _, name := range []string{namespace, namespace + "-shop"} {
		_, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		s.must(err)
	}
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) eventually(what string, condition func(context.Context) (bool, error)) {
	s.Helper()
	if err := wait.PollUntilContextTimeout(s.Context(), 50*time.Millisecond, patience, true, condition); err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// node adds a real kubelet.
func (s *stage) node(name, capacity string) {
	s.Helper()
	_, err := s.cluster.AddNode(s.Context(), livecluster.Node{Name: name, Labels: map[string]string{"karpenter.sh/capacity-type": capacity}})
	s.must(err)
}

// bare makes a pod that nothing would make again.
func (s *stage) bare(name, node string) {
	s.Helper()
	s.pod(s.namespace+"-shop", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}})
}

func (s *stage) pod(namespace string, pod *corev1.Pod) {
	s.Helper()
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i:1"}}
	// The service account of a new namespace may take a moment.
	s.eventually("pod "+pod.Name+" is made", func(ctx context.Context) (bool, error) {
		_, err := s.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err == nil, nil
	})
	s.eventually("pod "+pod.Name+" runs", func(ctx context.Context) (bool, error) {
		now, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodRunning, nil
	})
}

// taint marks a node as going, or as healthy again.
func (s *stage) taint(node, taints string) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"taints":%s}}`, taints)
	_, err := s.client.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

// speaks puts the annotation on a node that its agent would have put there in an earlier boot.
func (s *stage) speaks(node string) {
	s.Helper()
	published := `{"source":"PodsAPI","bootID":"an-earlier-boot","observed":"2026-12-01T19:00:00Z","pods":[]}`
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, domain.StaticPods, published)
	_, err := s.client.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

const (
	interrupted = `[{"key":"spot-interruption","value":"true","effect":"NoSchedule"}]`
	healthy     = `[]`
)

// controller starts a controller, and a pod on the node that stands for it and forwards to its stream.
func (s *stage) controller(name, node string) *liverollcall.Program {
	s.Helper()
	s.Setenv("POD_NAME", name)
	p, err := s.binaries.Start(liverollcall.Controller, name, "--kubeconfig", s.cluster.Kubeconfig(), "--health-address=", "--stream-address=127.0.0.1:0",
		"--leader-elect-namespace", s.namespace, "--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms")
	s.must(err)
	s.Cleanup(func() {
		p.Stop()
		if s.Failed() {
			s.Log(p.Explain(fmt.Errorf("the controller %s", name)))
		}
	})
	var port string
	s.eventually(name+" serves its stream", func(context.Context) (bool, error) {
		address, err := p.Stream()
		if address != "" {
			_, port, err = net.SplitHostPort(address)
		}
		return port != "", err
	})
	s.pod(s.namespace, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"cluster.rollcall.dev/forward": fmt.Sprintf("%d:%s", stream.Port, port)}},
		Spec:       corev1.PodSpec{NodeName: node},
	})
	return p
}

// leads waits until the Lease says so.
func (s *stage) leads(name string) {
	s.Helper()
	s.eventually(name+" leads", func(ctx context.Context) (bool, error) {
		lease, err := s.client.CoordinationV1().Leases(s.namespace).Get(ctx, "rollcall-controller", metav1.GetOptions{})
		return err == nil && lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, name+"_"), nil
	})
}

// The live view in a real terminal, over the API server and a kubelet, from a real controller: keys, every view, another
// size, the leader killed, the way out.
func TestLiveView(t *testing.T) {
	s := newStage(t, "view")
	s.node("stable-1", "on-demand")
	s.node("spot-1", "spot")
	s.node("spot-2", "spot")
	s.bare("notebook", "spot-1")
	s.bare("load-test", "spot-2")
	first := s.controller("first", "stable-1")
	s.leads("first")
	s.controller("second", "stable-1")
	if *record != "" {
		path, err := filepath.Abs(*record)
		s.must(err)
		s.must(os.Link(binary, filepath.Join(s.binaries.Dir, liverollcall.Plugin)))
		p, err := s.binaries.Start(liverollcall.Plugin, "recorder", "stream", "--kubeconfig", s.cluster.Kubeconfig(), "--controller-namespace", s.namespace, "--record", path)
		s.must(err)
		defer p.Stop()
	}
	p := livepane.Open(t, 120, 40, []string{"LC_ALL=C.UTF-8"}, binary, "--kubeconfig", s.cluster.Kubeconfig(), "--controller-namespace", s.namespace)
	p.Shows("* live", "leader first", "the cluster's controller", "no node goes")
	s.seesViews(p)
	s.seesAnotherLeader(p, first)
	// The way out.
	p.Press("q")
	p.Shows("ended with 0")
}

// seesViews goes through the views while nodes go and come.
func (s *stage) seesViews(p *livepane.Pane) {
	// Before anything goes.
	p.Press("5")
	p.Shows("[5 Standing", "! spot", "spot-1", "view-shop/notebook")
	p.Press("1")
	s.taint("spot-1", interrupted)
	p.Shows("» ! committed  spot-1", "in 1m", "lost 1")
	s.taint("spot-2", interrupted)
	p.Shows("! committed  spot-2", "lost 2")
	p.Press("Enter")
	p.Shows("» spot-1", "» ! Lost          view-shop/notebook", "NoController", "marked")
	p.Press("Enter")
	p.Shows("pod view-shop/notebook", "Certain")
	p.Press("Escape")
	p.Shows("» ! Lost ")
	p.Press("Escape")
	p.Shows("! committed  spot-2")
	p.Press("3")
	p.Shows("[3 Queue", "Node spot-1", "running")
	p.Press("/", "s", "p", "o", "t", "-", "2")
	p.Shows("/spot-2_", "Node spot-2")
	p.Press("Escape")
	p.Shows("by state")
	p.Press("4")
	p.Shows("! mark", "view-shop/load-test")
	p.Press("?")
	p.Shows("up one row", "copy the name under the cursor")
	p.Press("?")
	// A new node is held, and released.
	s.taint("stable-1", `[{"key":"readiness.k8s.io/StaticPodsMirrored","value":"pending","effect":"NoSchedule"}]`)
	p.Press("2")
	p.Shows("[2 Coming", "~ held", "stable-1", "KubeletNotReady")
	s.speaks("stable-1")
	s.taint("stable-1", healthy)
	p.Shows("+ released")
	// Another size.
	p.Press("1")
	p.Tmux("resize-window", "-x", "60", "-y", "15")
	p.Shows("» ! committed  spot-1")
	p.Tmux("resize-window", "-x", "50", "-y", "10")
	p.Shows("terminal too small (need 60x15)")
	p.Tmux("resize-window", "-x", "120", "-y", "40")
	// The clipboard.
	p.Press("j")
	p.Shows("» ! committed  spot-2")
	p.Press("y")
	p.Shows("sent to the terminal's clipboard: spot-2")
	s.eventually("tmux has the name", func(context.Context) (bool, error) { return p.Tmux("show-buffer") == "spot-2", nil })
}

// logLine is how klog begins a line, and slog one.
var logLine = regexp.MustCompile(`(?m)^[EWIF]\d{4} |level=(ERROR|WARN)`)

// seesAnotherLeader kills the leader: the view says so, keeps what it knew, finds the next one, and the cursor stays.
func (s *stage) seesAnotherLeader(p *livepane.Pane, leader *liverollcall.Program) {
	leader.Kill()
	p.Shows("! disconnected", "data ", "» ! committed  spot-2")
	s.leads("second")
	screen := p.Shows("* live", "second leads now", "» ! committed  spot-2")
	if logLine.MatchString(screen) {
		s.Errorf("a log was painted over the screen:\n%s", screen)
	}
	s.taint("spot-1", healthy)
	p.Shows("going 1 ", "» ! committed  spot-2")
	s.taint("spot-2", healthy)
	p.Shows("spot-2 is no longer here", "no node goes")
}

// Without a controller in the cluster the view says how to have one of one's own, and that one shows the same and writes
// nothing.
func TestLocalView(t *testing.T) {
	s := newStage(t, "local")
	s.node("local-1", "spot")
	s.bare("notebook", "local-1")
	kubeconfig := s.cluster.Kubeconfig()
	p := livepane.Open(t, 100, 30, []string{"LC_ALL=C"}, binary, "--kubeconfig", kubeconfig, "--controller-namespace", s.namespace)
	p.Shows("! disconnected", "no controller leads in this", "kubectl rollcall --local")
	p.Press("q")
	p.Shows("ended with 0")
	s.reader()
	p = livepane.Open(t, 100, 30, []string{"LC_ALL=C"}, binary, "--local", "--kubeconfig", kubeconfig, "--as", "local-reader")
	p.Shows("* live", "read-only")
	s.taint("local-1", interrupted)
	p.Shows("> ! committed  local-1", "lost 1") // ASCII by the locale
	p.Press("4")
	p.Shows("! would mark", "local-shop/notebook")
	p.Press("q")
	p.Shows("ended with 0")
	pod, err := s.client.CoreV1().Pods("local-shop").Get(t.Context(), "notebook", metav1.GetOptions{})
	s.must(err)
	if len(pod.Annotations) > 0 {
		t.Errorf("a read-only controller wrote %v", pod.Annotations)
	}
	s.taint("local-1", healthy)
}

// reader may read everything and write nothing.
func (s *stage) reader() {
	s.Helper()
	_, err := s.client.RbacV1().ClusterRoles().Create(s.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "local-reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.client.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "local-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "local-reader"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "local-reader"},
	}, metav1.CreateOptions{})
	s.must(err)
}
