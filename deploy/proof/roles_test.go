package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

// withController has every right that a value of the chart adds to the controller, and a person.
const withController = `
controller:
  mark: [Lost, Stranded]
  ownerKinds: [{group: example.com, kind: Widget, resource: widgets}]
  releaseTaint: true
rbac:
  viewers: [{kind: ServiceAccount, name: person, namespace: default}]
`

// withoutController lets the agents write the condition.
const withoutController = `
controller: {mode: None}
agent: {standalone: true}
`

// all go with withController, and make that happen within seconds for which days and thousands are usual.
var all = []string{"--mark=Lost,Stranded", "--owner-kinds=example.com/Widget", "--release-taint", "--held-warning=1s", "--losses-per-namespace=1"}

// startController starts the first controller of the cluster: it makes the Lease.
func (o *occasion) startController(kubeconfig string, flags ...string) *liverollcall.Program {
	o.Helper()
	err := o.client.CoordinationV1().Leases(system).Delete(o.Context(), "rollcall-controller", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		o.must(err)
	}
	usual := []string{"--kubeconfig", kubeconfig, "--leader-elect-namespace=" + system, "--leader-elect-retry-period=200ms", "--health-address=127.0.0.1:0"}
	p, err := o.programs().Start(liverollcall.Controller, "controller-of-"+o.namespace, append(usual, flags...)...)
	o.must(err)
	o.Cleanup(p.Stop)
	return p
}

// The controller does all its work with exactly its roles and policies: no request is refused, and no right is granted that
// is not used. Twice, since there are two ways to fill a cache: API servers before 1.34 do not stream lists.
func TestControllerNeedsItsRolesAndNoMore(t *testing.T) {
	l := newLab(t, withController)
	used := map[right]bool{}
	for _, streams := range []string{"true", "false"} {
		t.Setenv("KUBE_FEATURE_WatchListClient", streams)
		o := l.newOccasion()
		d, kubeconfig := l.through(l.bound(system, "rollcall-controller", home))
		o.meetConflicts(d)
		p := o.startController(kubeconfig, all...)
		o.allHappens()
		l.says(p, "what interrupted a node is known", "interruption=SpotInterrupted", o.nodeName("claimed"))
		p.Stop()
		l.noneRefused("rollcall-controller", d)
		for _, r := range d.used() {
			used[r] = true
		}
	}
	l.onlyUsed(used, l.rights("rollcall-controller"))
}

// meetConflicts has another writer come first: to a Node whose condition is about to be written, and to a record that is
// about to be created. What the controller has seen is old then, and it reads again.
func (o *occasion) meetConflicts(d *door) {
	d.once(right{"patch", "", "nodes/status"}, func(body []byte) {
		var node metav1.PartialObjectMetadata
		if err := json.Unmarshal(body, &node); err != nil {
			o.Error(err)
			return
		}
		o.touch(node.Name)
	})
	d.once(right{"create", losses.Group, losses.Resource}, func(body []byte) {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(body); err != nil {
			o.Error(err)
			return
		}
		if _, err := o.dynamic.Resource(losses).Namespace(object.GetNamespace()).Create(o.Context(), object, metav1.CreateOptions{}); err != nil {
			o.Error(err)
		}
	})
}

// allHappens waits for everything that the controller does for the occasion.
func (o *occasion) allHappens() {
	o.Helper()
	o.marked(o.namespace, "bare", "NoController")
	for i := range owners {
		o.marked(o.orphans(), fmt.Sprintf("of-%d", i), "OwnerGone")
	}
	o.condition(o.nodeName("held"), corev1.ConditionFalse, "MirrorMissing", true)
	o.condition(o.nodeName("free"), corev1.ConditionTrue, "NoStaticPods", false)
	o.told(o.namespace, "bare", "WillBeLost")
	o.told("default", o.nodeName("going"), "WillBeLost")
	o.told("default", o.nodeName("held"), "StaticPodsNotMirrored")
	o.recorded("bare", "Open")
	o.must(o.dropPod(o.Context(), o.namespace, "bare"))
	o.recorded("bare", "Closed")
	o.told(o.namespace, "bare", "Lost")
	o.pod(o.namespace, "next", "going")
	o.recorded("next", "Open") // there is room for one
}

// told waits for an Event about the object.
func (l *lab) told(namespace, object, reason string) {
	l.Helper()
	l.eventually(fmt.Sprintf("the Event %s on %s", reason, object), func(ctx context.Context) (bool, error) {
		events, err := l.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + object + ",reason=" + reason})
		return err == nil && len(events.Items) > 0, err
	})
}

// The agent publishes with its roles and policies, and in the other form writes the condition.
func TestAgentNeedsItsRolesAndNoMore(t *testing.T) {
	for name, values := range map[string]string{"publisher": withController, "standalone": withoutController} {
		t.Run(name, func(t *testing.T) {
			l, standalone := newLab(t, values), name == "standalone"
			used := map[right]bool{}
			for _, streams := range []string{"true", "false"} {
				t.Setenv("KUBE_FEATURE_WatchListClient", streams)
				o := l.newArrival()
				d, kubeconfig := l.through(l.bound(system, "rollcall-agent", o.nodeName("mine")))
				p := o.startAgent(kubeconfig, standalone)
				o.published("mine")
				if standalone {
					d.once(right{"patch", "", "nodes/status"}, func([]byte) { o.touch(o.nodeName("mine")) })
					o.forgetCondition("mine")
					l.condition(o.nodeName("mine"), corev1.ConditionTrue, "NoStaticPods", true)
				}
				o.forge("mine")
				l.told("default", o.nodeName("mine"), "StaticPodsOverwritten")
				o.published("mine")
				p.Stop()
				l.noneRefused("rollcall-agent, "+name, d)
				for _, r := range d.used() {
					used[r] = true
				}
			}
			l.onlyUsed(used, l.rights("rollcall-agent"))
		})
	}
}

// The person asks everything, of a cluster in which there is something to answer.
func TestPersonNeedsTheRolesAndNoMore(t *testing.T) {
	l := newLab(t, withController)
	l.install(person())
	o := l.newOccasion()
	d, kubeconfig := l.through(l.unbound("default", "person"))
	s := l.newStage("proof-person")
	for _, ask := range append(o.questions(), s.question()) {
		if said := o.ask(kubeconfig, ask...); strings.Contains(said, "you may not") {
			t.Errorf("%q says:\n%s", ask, said)
		}
	}
	l.noneRefused("person", d)
	used := map[right]bool{}
	for _, r := range d.used() {
		used[r] = true
	}
	l.onlyUsed(used, l.rights("rollcall-viewer"))
}

func person() *unstructured.Unstructured { return serviceAccount("person") }

func serviceAccount(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name, "namespace": "default"},
	}}
}

// Who may view a namespace sees its losses and no other's, by a role that the API server adds to its own; without that role's
// rule they are told what they may not.
func TestViewersOfANamespaceSeeItsLosses(t *testing.T) {
	const namespace = "proof-viewed"
	l := newLab(t, "")
	l.makeNamespace(namespace)
	l.install(serviceAccount("looker"))
	l.install(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": "looker", "namespace": namespace},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "looker", "namespace": "default"}},
	}})
	role := l.roles("rollcall-podlosses-view")[0]
	who, rule := l.unbound("default", "looker"), rulesOf(t, role)[0]
	used := map[right]bool{}
	asks := func() string {
		d, kubeconfig := l.through(who)
		said := l.ask(kubeconfig, "losses", "--namespace", namespace) + l.ask(kubeconfig, "losses")
		for _, r := range d.used() {
			used[r] = true
		}
		return said
	}
	here, everywhere := "podlosses in namespace "+namespace, "podlosses of all namespaces"

	l.may(who, rule, namespace, true)
	if said := asks(); strings.Contains(said, here) || !strings.Contains(said, everywhere) {
		t.Errorf("with the right to %s the answers are:\n%s", join(rightsOf(rule)), said)
	}
	if !used[right{"list", losses.Group, losses.Resource}] {
		t.Errorf("losses uses %s", join(sorted(used)))
	}
	l.setRules(role, nil)
	l.may(who, rule, namespace, false)
	if said := asks(); !strings.Contains(said, here) {
		t.Errorf("without the right to %s the answers are:\n%s", join(rightsOf(rule)), said)
	}
}

// questions are what a person asks, each a command line.
func (o *occasion) questions() [][]string {
	return [][]string{
		{"check", "--all", "--owner-kinds=example.com/Widget"},
		{"check", o.nodeName("going")},
		{"mirrors", o.nodeName("held")},
		{"losses"},
	}
}

// ask runs the plugin to its end and returns all that it says.
func (l *lab) ask(kubeconfig string, args ...string) string {
	l.Helper()
	plugin := exec.CommandContext(l.Context(), filepath.Join(l.programs().Dir, liverollcall.Plugin), append(args, "--kubeconfig", kubeconfig)...)
	said, err := plugin.CombinedOutput()
	if plugin.ProcessState == nil {
		l.Fatal(err)
	}
	return string(said)
}

// noneRefused fails where the program was refused anything.
func (l *lab) noneRefused(program string, d *door) {
	l.Helper()
	for _, q := range d.refused() {
		l.Errorf("%s was refused: %s", program, q)
	}
	l.Logf("%s: %d requests, %d of them refused; rights used: %s", program, len(d.asked), len(d.refused()), join(d.used()))
}

func join(rights []right) string {
	var names []string
	for _, r := range rights {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

// rights are all that the chart's roles of that name grant.
func (l *lab) rights(role string) map[right]bool {
	l.Helper()
	granted := map[right]bool{}
	for _, object := range l.roles(role) {
		for _, rule := range rulesOf(l.T, object) {
			for _, r := range rightsOf(rule) {
				granted[r] = true
			}
		}
	}
	return granted
}

// rulesOf are the rules of a Role or a ClusterRole, none of anything else.
func rulesOf(t *testing.T, object *unstructured.Unstructured) []rbacv1.PolicyRule {
	t.Helper()
	if !slices.Contains([]string{"Role", "ClusterRole"}, object.GetKind()) {
		return nil
	}
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

func rightsOf(rule rbacv1.PolicyRule) (rights []right) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				rights = append(rights, right{verb, group, resource})
			}
		}
	}
	return rights
}

// onlyUsed fails where a right is granted that was not used.
func (l *lab) onlyUsed(used, granted map[right]bool) {
	l.Helper()
	unused := 0
	for _, r := range sorted(granted) {
		if !used[r] {
			unused++
			l.Errorf("the right to %s is granted and not used", r)
		}
	}
	l.Logf("%d rights granted, %d of them not used: %s", len(granted), unused, join(sorted(granted)))
}
