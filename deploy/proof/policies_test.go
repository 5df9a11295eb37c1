package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/readiness"
)

// An attempt is a request, sent as a dry run, by an account that may do everything as far as roles go.
type attempt struct {
	what string
	by   kubernetes.Interface
	do   func(ctx context.Context, by kubernetes.Interface) error
	// refused is what the policy says; empty where the request is allowed.
	refused string
}

// dry sends everything through admission and writes nothing.
var dry = []string{metav1.DryRunAll}

// try sends the attempts and prints what came of them.
func (l *lab) try(attempts []attempt) {
	l.Helper()
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, a := range attempts {
		err := a.do(l.Context(), a.by)
		answer := "allowed"
		if err != nil {
			answer = err.Error()
		}
		if _, after, ok := strings.Cut(answer, "denied request: "); ok {
			answer = "refused: " + after
		}
		fmt.Fprintf(rows, "%s\t%s\n", a.what, answer)
		if err != nil && !apierrors.IsForbidden(err) {
			l.Errorf("%s: %v, want 403", a.what, err)
		}
		if (a.refused == "") != (err == nil) || a.refused != "" && !strings.Contains(answer, "refused: "+a.refused) {
			l.Errorf("%s: %s, want %q", a.what, answer, a.refused)
		}
	}
	l.must(rows.Flush())
	l.Logf("policies:\n%s", table.String())
}

// mayAll makes roles no obstacle: what is refused then, a policy refuses.
func (l *lab) mayAll(accounts ...string) {
	l.Helper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "proof-"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}
	for _, account := range accounts {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: system, Name: account})
	}
	made, err := l.client.RbacV1().ClusterRoleBindings().Create(l.Context(), binding, metav1.CreateOptions{})
	l.must(err)
	l.Cleanup(func() {
		_ = l.client.RbacV1().ClusterRoleBindings().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
}

// enforced waits until a request that only a policy refuses is refused: the API server takes up policies within a second or so.
func (l *lab) enforced(by kubernetes.Interface, do func(context.Context, kubernetes.Interface) error) {
	l.Helper()
	l.eventually("the policies are enforced", func(ctx context.Context) (bool, error) {
		err := do(ctx, by)
		return err != nil && strings.Contains(err.Error(), "denied request"), nil
	})
}

// patchOf sends a patch of a Node.
func patchOf(node string, kind types.PatchType, patch string, subresource ...string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, by kubernetes.Interface) error {
		options := metav1.PatchOptions{DryRun: dry, FieldManager: "proof"}
		if kind == types.ApplyPatchType {
			options.Force = new(bool)
			*options.Force = true
		}
		_, err := by.CoreV1().Nodes().Patch(ctx, node, kind, []byte(patch), options, subresource...)
		return err
	}
}

// status sends a strategic merge patch of a Node's status.
func status(node, patch string) func(context.Context, kubernetes.Interface) error {
	return patchOf(node, types.StrategicMergePatchType, patch, "status")
}

// condition is a patch of one condition.
func condition(conditionType string) string {
	return `{"status":{"conditions":[{"type":"` + conditionType + `","status":"True","reason":"Proof"}]}}`
}

// eventOf creates an Event about a Node.
func eventOf(node, component string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, by kubernetes.Interface) error {
		_, err := by.CoreV1().Events("default").Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "proof-", Namespace: "default"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node}, Reason: "Proof", Type: "Normal",
			ReportingController: component, ReportingInstance: "proof",
		}, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func TestPolicyOfTheAgent(t *testing.T) {
	const (
		others   = `{"metadata":{"annotations":{"example.com/a":"b"}}}`
		onlySet  = "of a Node's annotations rollcall-agent changes only rollcall.dev/static-pods"
		onlyMeta = "rollcall-agent changes no labels, owners, finalizers or spec of a Node"
		own      = "rollcall-agent writes to its own Node only: its token is of node "
		nothing  = "rollcall-agent changes the status of a Node and nothing else of it"
		events   = "rollcall-agent makes Events of its own about its own Node"
	)
	for _, form := range []struct{ name, values, inStatus string }{
		{"publisher", withController, "rollcall-agent without --standalone changes nothing in a Node's status"},
		{"standalone", withoutController, "of a Node's status rollcall-agent changes only the condition " + readiness.DefaultCondition},
	} {
		t.Run(form.name, func(t *testing.T) {
			l := newLab(t, form.values)
			l.mayAll("rollcall-agent")
			o := l.newArrival()
			o.node("other", nil)
			o.busy("mine")
			mine, other := o.nodeName("mine"), o.nodeName("other")
			agent, loose := l.as(l.bound(system, "rollcall-agent", mine)), l.as(l.unbound(system, "rollcall-agent"))
			l.enforced(loose, status(mine, others))
			l.enforced(loose, eventOf(mine, "rollcall.dev/agent"))
			object, err := l.client.CoreV1().Nodes().Get(t.Context(), mine, metav1.GetOptions{})
			l.must(err)
			set, err := readiness.ApplySet(object, `{"pods":[]}`)
			l.must(err)
			unlessStandalone := ""
			if form.name == "publisher" {
				unlessStandalone = form.inStatus
			}
			const setting = `{"metadata":{"annotations":{"` + domain.StaticPods + `":"{}"}}}`
			l.try([]attempt{
				{"its set, as it applies it", agent, patchOf(mine, types.ApplyPatchType, string(set), "status"), ""},
				{"its set taken away", agent, status(mine, `{"metadata":{"annotations":{"`+domain.StaticPods+`":null}}}`), ""},
				{"its set on another Node", agent, status(other, setting), own + mine},
				{"its set, token bound to no pod", loose, status(mine, setting), own + "(none)"},
				{"its set, through the Node itself", agent, patchOf(mine, types.MergePatchType, setting), nothing},
				{"another annotation", agent, status(mine, others), onlySet},
				{"rollcall.dev/released", agent, status(mine, `{"metadata":{"annotations":{"`+domain.Released+`":"x"}}}`), onlySet},
				{"another annotation taken away", agent, status(mine, `{"metadata":{"annotations":{"example.com/kept":null}}}`), onlySet},
				{"a label", agent, status(mine, `{"metadata":{"labels":{"example.com/a":"b"}}}`), onlyMeta},
				{"a finalizer", agent, status(mine, `{"metadata":{"finalizers":["example.com/a"]}}`), onlyMeta},
				{"the condition", agent, status(mine, condition(readiness.DefaultCondition)), unlessStandalone},
				{"the condition of another Node", agent, status(other, condition(readiness.DefaultCondition)), own + mine},
				{"the condition Ready", agent, status(mine, condition("Ready")), form.inStatus},
				{"another's condition taken away", agent, status(mine, `{"status":{"conditions":[{"$patch":"delete","type":"MemoryPressure"}]}}`), form.inStatus},
				{"more capacity", agent, status(mine, `{"status":{"capacity":{"cpu":"1000"}}}`), form.inStatus},
				{"another address", agent, status(mine, `{"status":{"addresses":[{"type":"InternalIP","address":"10.1.2.3"}]}}`), form.inStatus},
				{"a taint taken away", agent, patchOf(mine, types.MergePatchType, `{"spec":{"taints":null}}`), nothing},
				{"its Node deleted", agent, deletion(mine), nothing},
				{"an Event about its Node", agent, eventOf(mine, "rollcall.dev/agent"), ""},
				{"an Event about another Node", agent, eventOf(other, "rollcall.dev/agent"), events},
				{"an Event in the kubelet's name", agent, eventOf(mine, "kubelet"), events},
				{"an Event, token bound to no pod", loose, eventOf(mine, "rollcall.dev/agent"), events},
			})
		})
	}
}

func deletion(node string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, by kubernetes.Interface) error {
		return by.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{DryRun: dry})
	}
}

// busy gives the Node what real ones have: many images, conditions, an annotation of somebody else's. A policy must
// compare it all within the API server's bounds.
func (o *occasion) busy(node string) {
	o.Helper()
	var images []any
	for i := range 50 { // a kubelet's default
		images = append(images, map[string]any{"names": []any{fmt.Sprintf("registry.example.com/%060d:v1", i), fmt.Sprintf("registry.example.com/%060d@sha256:%064d", i, i)}, "sizeBytes": 1 << 30})
	}
	var conditions []any
	for _, name := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		conditions = append(conditions, map[string]any{"type": name, "status": "False", "reason": "Proof"})
	}
	o.patchNode(o.nodeName(node), map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/kept": "here"}}})
	o.patchNode(o.nodeName(node), map[string]any{"status": map[string]any{"images": images, "conditions": conditions, "capacity": map[string]any{"cpu": "2"}}}, "status")
}

// podPatch sends a merge patch of a pod's status, or of another part.
func podPatch(namespace, name, patch string, subresource ...string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, by kubernetes.Interface) error {
		_, err := by.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry}, subresource...)
		return err
	}
}

func TestPolicyOfTheControllerOnPods(t *testing.T) {
	const (
		nothing     = "rollcall-controller annotates pods through their status and does nothing else to them"
		annotations = "of a pod's annotations rollcall-controller changes only those under rollcall.dev/"
		only        = "rollcall-controller changes nothing of a pod but annotations"
	)
	l := newLab(t, withController)
	l.mayAll("rollcall-controller")
	o := l.newArrival()
	ns := o.namespace
	l.makeNamespace(ns)
	o.pod(ns, "p", "mine")
	o.pod(ns, "going", "mine")
	l.must(l.client.CoreV1().Pods(ns).Delete(t.Context(), "going", metav1.DeleteOptions{})) // no kubelet ends it
	_, err := l.client.CoreV1().Pods(ns).Patch(t.Context(), "p", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"example.com/kept":"here","`+domain.AtRisk+`":"{}"}}}`), metav1.PatchOptions{})
	l.must(err)
	controller := l.as(l.bound(system, "rollcall-controller", home))
	mark := `{"metadata":{"annotations":{"` + domain.AtRisk + `":"{\"verdict\":\"Lost\"}"}}}`
	l.enforced(controller, podPatch(ns, "p", `{"metadata":{"labels":{"a":"b"}}}`))
	l.try([]attempt{
		{"a mark", controller, podPatch(ns, "p", mark, "status"), ""},
		{"a mark on a pod that is being deleted", controller, podPatch(ns, "going", mark, "status"), ""},
		{"a mark taken away", controller, podPatch(ns, "p", `{"metadata":{"annotations":{"`+domain.AtRisk+`":null}}}`, "status"), ""},
		{"a mark, through the pod itself", controller, podPatch(ns, "p", mark), nothing},
		{"another annotation", controller, podPatch(ns, "p", `{"metadata":{"annotations":{"example.com/a":"b"}}}`, "status"), annotations},
		{"another annotation changed", controller, podPatch(ns, "p", `{"metadata":{"annotations":{"example.com/kept":"x"}}}`, "status"), annotations},
		{"another annotation taken away", controller, podPatch(ns, "p", `{"metadata":{"annotations":{"example.com/kept":null}}}`, "status"), annotations},
		{"an annotation of a similar name", controller, podPatch(ns, "p", `{"metadata":{"annotations":{"rollcall.dev.example.com/a":"b"}}}`, "status"), annotations},
		{"a label", controller, podPatch(ns, "p", `{"metadata":{"labels":{"a":"b"}}}`, "status"), only},
		{"a finalizer", controller, podPatch(ns, "p", `{"metadata":{"finalizers":["example.com/a"]}}`, "status"), only},
		{"a phase", controller, podPatch(ns, "p", `{"status":{"phase":"Failed"}}`, "status"), only},
		{"a condition", controller, podPatch(ns, "p", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status"), only},
		{"a deadline", controller, podPatch(ns, "p", `{"spec":{"activeDeadlineSeconds":9}}`), nothing},
		{"a pod created", controller, func(ctx context.Context, by kubernetes.Interface) error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}}
			_, err := by.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: dry})
			return err
		}, nothing},
		{"a pod deleted", controller, func(ctx context.Context, by kubernetes.Interface) error {
			return by.CoreV1().Pods(ns).Delete(ctx, "p", metav1.DeleteOptions{DryRun: dry})
		}, nothing},
		{"a pod evicted", controller, func(ctx context.Context, by kubernetes.Interface) error {
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, DeleteOptions: &metav1.DeleteOptions{DryRun: dry}}
			return by.PolicyV1().Evictions(ns).Evict(ctx, eviction)
		}, nothing},
		{"a command in a pod", controller, func(ctx context.Context, by kubernetes.Interface) error {
			return by.CoreV1().RESTClient().Post().Resource("pods").Namespace(ns).Name("p").SubResource("exec").
				Param("container", "c").Param("command", "id").Param("stdout", "true").Do(ctx).Error()
		}, nothing},
	})
}

func TestPolicyOfTheControllerOnNodes(t *testing.T) {
	const (
		annotations = "of a Node's annotations rollcall-controller changes only those under rollcall.dev/"
		meta        = "rollcall-controller changes no labels, owners or finalizers of a Node"
		other       = "example.com/other"
		only        = "of a Node's status rollcall-controller changes only the condition " + readiness.DefaultCondition
	)
	for _, form := range []struct{ name, values, spec, release, nothing string }{
		{"with --release-taint", withController, "of a Node's spec rollcall-controller changes only the readiness taint, which it takes away", "",
			"rollcall-controller changes the condition and the readiness taint of Nodes and does nothing else to them"},
		{"without", "", "rollcall-controller without --release-taint changes the status of Nodes and does nothing else to them",
			"rollcall-controller without --release-taint changes the status of Nodes and does nothing else to them",
			"rollcall-controller without --release-taint changes the status of Nodes and does nothing else to them"},
	} {
		t.Run(form.name, func(t *testing.T) {
			l := newLab(t, form.values)
			l.mayAll("rollcall-controller")
			o := l.newArrival()
			o.patchNode(o.nodeName("mine"), map[string]any{"spec": map[string]any{"taints": []any{taint(readiness.TaintKey), taint(other)}}})
			o.busy("mine")
			mine := o.nodeName("mine")
			controller := l.as(l.bound(system, "rollcall-controller", home))
			apply := func(object *corev1.Node) ([]byte, error) {
				return readiness.ApplyCondition(object, corev1.NodeCondition{Type: readiness.DefaultCondition, Status: "True", Reason: "Proof"})
			}
			taints := func(change func([]corev1.Taint) []corev1.Taint) func(context.Context, kubernetes.Interface) error {
				return l.retaint(mine, change)
			}
			without := func(keys ...string) func([]corev1.Taint) []corev1.Taint {
				return func(all []corev1.Taint) []corev1.Taint {
					return slices.DeleteFunc(all, func(t corev1.Taint) bool { return slices.Contains(keys, t.Key) })
				}
			}
			with := func(key string) func([]corev1.Taint) []corev1.Taint {
				return func(all []corev1.Taint) []corev1.Taint {
					return append(without(key)(all), corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
				}
			}
			l.enforced(controller, status(mine, `{"metadata":{"labels":{"a":"b"}}}`))
			l.try([]attempt{
				{"the condition, as it applies it", controller, l.asRead(mine, types.ApplyPatchType, apply, "status"), ""},
				{"an annotation under rollcall.dev/", controller, status(mine, `{"metadata":{"annotations":{"rollcall.dev/a":"b"}}}`), ""},
				{"the condition Ready", controller, status(mine, condition("Ready")), only},
				{"another's condition taken away", controller, status(mine, `{"status":{"conditions":[{"$patch":"delete","type":"MemoryPressure"}]}}`), only},
				{"all conditions replaced", controller, patchOf(mine, types.MergePatchType, condition(readiness.DefaultCondition), "status"), only},
				{"more capacity", controller, status(mine, `{"status":{"capacity":{"cpu":"1000"}}}`), only},
				{"another annotation", controller, status(mine, `{"metadata":{"annotations":{"example.com/kept":"x"}}}`), annotations},
				{"a label", controller, status(mine, `{"metadata":{"labels":{"a":"b"}}}`), meta},
				{"a finalizer", controller, status(mine, `{"metadata":{"finalizers":["example.com/a"]}}`), meta},
				{"the readiness taint taken away", controller, taints(without(readiness.TaintKey)), form.release},
				{"that and another taken away", controller, taints(without(readiness.TaintKey, other)), form.spec},
				{"another taint taken away", controller, taints(without(other)), form.spec},
				{"a taint added", controller, taints(with("example.com/new")), form.spec},
				{"the readiness taint made NoExecute", controller, taints(with(readiness.TaintKey)), form.spec},
				{"a cordon", controller, patchOf(mine, types.MergePatchType, `{"spec":{"unschedulable":true}}`), form.spec},
				{"a Node deleted", controller, deletion(mine), form.nothing},
				{"a Node created", controller, func(ctx context.Context, by kubernetes.Interface) error {
					_, err := by.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: mine + "-new"}}, metav1.CreateOptions{DryRun: dry})
					return err
				}, form.nothing},
			})
		})
	}
}

// asRead sends a patch made from the Node as it is at that moment, and again where somebody wrote in between: Kubernetes
// writes to a Node without a kubelet, too.
func (l *lab) asRead(node string, kind types.PatchType, patch func(*corev1.Node) ([]byte, error), subresource ...string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, by kubernetes.Interface) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			object, err := l.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			text, err := patch(object)
			if err != nil {
				return err
			}
			return patchOf(node, kind, string(text), subresource...)(ctx, by)
		})
	}
}

// retaint sends a Node's taints changed, and the annotation that goes with their release.
func (l *lab) retaint(node string, change func([]corev1.Taint) []corev1.Taint) func(context.Context, kubernetes.Interface) error {
	return l.asRead(node, types.MergePatchType, func(object *corev1.Node) ([]byte, error) {
		return json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": object.ResourceVersion, "annotations": map[string]any{domain.Released: string(object.UID)}},
			"spec":     map[string]any{"taints": change(object.Spec.Taints)},
		})
	})
}

// The policies hold no mistake that the API server's own check of their expressions finds.
func TestPoliciesAreWellTyped(t *testing.T) {
	l := newLab(t, withController)
	for _, object := range l.chart {
		if object.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		l.eventually(object.GetName()+" is checked", func(ctx context.Context) (bool, error) {
			policy, err := l.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, object.GetName(), metav1.GetOptions{})
			if err != nil || policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
				return false, err
			}
			for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("%s: %s: %s", policy.Name, warning.FieldRef, warning.Warning)
			}
			return true, nil
		})
	}
}
