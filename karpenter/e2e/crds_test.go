package e2e

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/crdwatch"
	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// pace is how often the tests' rollcall asks for kinds that are not served.
const pace = 200 * time.Millisecond

// A bareStage is a cluster of its own without Karpenter, with one node and a bare pod on it.
type bareStage struct {
	*act
	config *rest.Config
}

const bareNode, bareNamespace = "by-hand", "default"

func newBareStage(t *testing.T) *bareStage {
	t.Helper()
	cluster, err := livecluster.Start(t.Context(), livecluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	config := cluster.Config()
	s := &stage{cluster: cluster, client: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config)}
	before := slog.Default()
	s.log.open()
	t.Cleanup(func() { slog.SetDefault(before) })
	b := &bareStage{act: &act{T: t, stage: s, name: bareNamespace}, config: config}
	_, err = s.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: bareNode}, Spec: corev1.NodeSpec{ProviderID: "hand://1"}}, metav1.CreateOptions{})
	b.must(err)
	b.pod("bare", bareNode, func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = nil
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // its Node has no kubelet and is tainted for that
	})
	return b
}

// start runs rollcall as an administrator or, with a user's name, as that user.
func (b *bareStage) start(user string) *rollcall {
	b.Helper()
	config := rest.CopyConfig(b.config)
	config.Impersonate.UserName = user
	r, err := startRollcall(config, pace)
	b.must(err)
	b.Cleanup(r.stop)
	return r
}

func (b *bareStage) install() {
	b.Helper()
	object := map[string]any{}
	b.must(yaml.Unmarshal(karpapis.NodeClaimCRD, &object))
	_, err := b.dynamic.Resource(crdResource).Create(b.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	b.must(err)
}

// claimGoes makes a NodeClaim behind the node and deletes it; a finalizer keeps it, as Karpenter's would.
func (b *bareStage) claimGoes() {
	b.Helper()
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
		"metadata": map[string]any{"name": "by-hand", "finalizers": []any{"example.com/stay"}},
		"spec": map[string]any{
			"nodeClassRef": map[string]any{"group": "example.com", "kind": "Class", "name": "c"},
			"requirements": []any{map[string]any{"key": "karpenter.sh/capacity-type", "operator": "Exists"}},
		},
	}}
	b.eventually("the kind is served", func() bool {
		_, err := b.dynamic.Resource(claimResource).Create(b.Context(), claim, metav1.CreateOptions{})
		return err == nil
	})
	const status = `{"status":{"providerID":"hand://1","nodeName":"by-hand"}}`
	_, err := b.dynamic.Resource(claimResource).Patch(b.Context(), "by-hand", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	b.must(err)
	b.deleteClaim("by-hand")
}

func (b *bareStage) hasMark(want bool) {
	b.Helper()
	what := "the mark comes"
	if !want {
		what = "the mark goes"
	}
	b.eventually(what, func() bool {
		pod, err := b.client.CoreV1().Pods(bareNamespace).Get(b.Context(), "bare", metav1.GetOptions{})
		return err == nil && (pod.Annotations[domain.AtRisk] != "") == want
	})
}

// taint makes the node bear a taint that needs no Karpenter to be understood, or no longer.
func (b *bareStage) taint(on bool) {
	b.Helper()
	if !on {
		b.untaint(bareNode, "spot-interruption")
		return
	}
	const patch = `{"spec":{"taints":[{"key":"spot-interruption","effect":"NoSchedule"}]}}`
	_, err := b.client.CoreV1().Nodes().Patch(b.Context(), bareNode, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	b.must(err)
}

// told checks that a notice about the NodeClaims was given that often.
func (b *bareStage) told(notice string, want int) {
	b.Helper()
	if got := b.log.lines(notice, "nodeclaims.karpenter.sh"); len(got) != want {
		b.Errorf("%d notices %q, want %d: %v", len(got), notice, want, got)
	}
}

// worksByTaints checks that what needs no Karpenter goes on.
func (b *bareStage) worksByTaints() {
	b.Helper()
	b.taint(true)
	b.hasMark(true)
	b.taint(false)
	b.hasMark(false)
}

// Karpenter's definitions are absent, are installed while rollcall runs, and are removed.
func TestDefinitionsComeAndGo(t *testing.T) {
	b := newBareStage(t)
	r := b.start("")
	b.worksByTaints()
	b.told("not served", 1)

	b.install()
	b.eventually("the watch starts", func() bool { return r.claims.State() == crdwatch.Watching })
	b.claimGoes()
	b.hasMark(true)

	// The definition goes: the API server deletes its objects, and who holds their finalizers lets go.
	b.must(b.dynamic.Resource(crdResource).Delete(t.Context(), "nodeclaims.karpenter.sh", metav1.DeleteOptions{}))
	const free = `{"metadata":{"finalizers":null}}`
	_, err := b.dynamic.Resource(claimResource).Patch(t.Context(), "by-hand", types.MergePatchType, []byte(free), metav1.PatchOptions{})
	b.must(err)
	b.hasMark(false)
	b.eventually("the watch ends", func() bool { return r.claims.State() == crdwatch.Absent })
	b.worksByTaints()
	b.told("no longer served", 1)
	b.told("not served", 1)

	b.install()
	b.claimGoes()
	b.hasMark(true)
	b.told("msg=watching", 2)
}

// Karpenter's API is refused: one notice, the rest goes on, and the right takes effect when it is given.
func TestRefused(t *testing.T) {
	b := newBareStage(t)
	b.install()
	const user = "limited"
	b.grant(user, "rest",
		rbacv1.PolicyRule{APIGroups: []string{"", "apps", "batch"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/status", "events"}, Verbs: []string{"patch", "create"}})
	b.grantDiscovery(user)
	r := b.start(user)
	b.eventually("the refusal", func() bool { return r.claims.State() == crdwatch.Refused })
	b.claimGoes()
	b.worksByTaints()
	b.told("not allowed to watch", 1)

	b.grant(user, "karpenter", rbacv1.PolicyRule{APIGroups: []string{"karpenter.sh"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}})
	b.hasMark(true)
	b.told("not allowed to watch", 1)
	b.told("msg=watching", 1)
}

func (b *bareStage) grant(user, name string, rules ...rbacv1.PolicyRule) {
	b.Helper()
	_, err := b.client.RbacV1().ClusterRoles().Create(context.Background(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	b.must(err)
	b.bind(user, name)
}

// grantDiscovery gives what every authenticated client has; an impersonated user without groups does not.
func (b *bareStage) grantDiscovery(user string) { b.bind(user, "system:discovery") }

func (b *bareStage) bind(user, role string) {
	b.Helper()
	_, err := b.client.RbacV1().ClusterRoleBindings().Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	b.must(err)
}
