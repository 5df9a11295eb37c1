package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// A trial runs a program that lacks a right, and returns where it asked and what it said of it. All that it makes goes with the
// lab that it is given.
type trial func(l *lab, texts []string) (d *door, line string)

// Every rule of the controller's roles is taken away in turn: the API server refuses, and the controller says what it lacks.
func TestControllerWithoutOneRule(t *testing.T) {
	l := newLab(t, withController)
	who := l.bound(system, "rollcall-controller", home)
	watch := func(resource string) []string { return []string{"not allowed to watch", resource} }
	l.takeAway(who, l.roles("rollcall-controller"), map[string][]string{
		"get pods":                          watch("resource=pods"),
		"get nodes":                         watch("resource=nodes"),
		"get replicationcontrollers":        watch("resource=replicationcontrollers"),
		"get replicasets.apps":              watch("sets.apps"),
		"get jobs.batch":                    watch("resource=jobs.batch"),
		"list nodeclaims.karpenter.sh":      watch("resource=nodeclaims.karpenter.sh"),
		"patch pods/status":                 {"not allowed to patch pods/status", "ClusterRole"},
		"patch nodes/status":                {"not allowed to patch nodes/status", "ClusterRole"},
		"get namespaces":                    {"not allowed to get namespaces", "ClusterRole"},
		"create events":                     {"not allowed to create events", "ClusterRole"},
		"get podlosses.rollcall.dev":        {"not allowed to list podlosses.rollcall.dev", "ClusterRole"},
		"list persistentvolumes":            watch("resource="),
		"list poddisruptionbudgets.policy":  watch("resource=poddisruptionbudgets.policy"),
		"list nodepools.karpenter.sh":       watch("resource=nodepools.karpenter.sh"),
		"get widgets.example.com":           {"widgets.example.com", "not allowed"},
		"patch nodes":                       {"not allowed to patch nodes", "ClusterRole"},
		"create leases.coordination.k8s.io": {"not allowed to create leases"},
		"get leases.coordination.k8s.io":    {"not allowed to get leases"},
		"list events":                       {"not allowed to list events"},
	}, func(l *lab, texts []string) (*door, string) {
		o := l.newOccasion()
		d, kubeconfig := l.through(who)
		p := o.startController(kubeconfig, all...)
		defer p.Stop()
		return d, l.says(p, texts...)
	})
}

// The same of the agent, in both its forms.
func TestAgentWithoutOneRule(t *testing.T) {
	for name, values := range map[string]string{"publisher": withController, "standalone": withoutController} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, values)
			o := l.newArrival()
			who := l.bound(system, "rollcall-agent", o.nodeName("mine"))
			said := map[string][]string{
				"list nodes":         {"watching the Node", "the agent needs to list and watch nodes"},
				"patch nodes/status": {"writing to the Node", "to patch nodes/status"},
				"create events":      {"writing an Event", "to create events in namespace default"},
			}
			if name == "standalone" {
				said["get nodes"] = said["list nodes"]
				said["list pods"] = []string{"watching the pods of the node", "with --standalone also to get nodes, and to list and watch pods"}
				delete(said, "list nodes")
			}
			l.takeAway(who, l.roles("rollcall-agent"), said, func(l *lab, texts []string) (*door, string) {
				o := &occasion{l, o.namespace}
				o.forge("mine") // so that there is something to publish, and to warn of
				d, kubeconfig := l.through(who)
				p := o.startAgent(kubeconfig, name == "standalone")
				defer p.Stop()
				return d, l.says(p, texts...)
			})
		})
	}
}

// The same of a person: what may not be read is said, and the rest is answered where there is one.
func TestPersonWithoutOneRule(t *testing.T) {
	l := newLab(t, withController)
	l.install(person())
	o := l.newOccasion()
	who := l.unbound("default", "person")
	cannot := func(resource string) []string { return []string{"you may not list", resource} }
	l.takeAway(who, l.roles("rollcall-viewer", "ClusterRole"), map[string][]string{
		"get nodes":                        cannot("nodes"),
		"get pods":                         cannot("pods"),
		"list replicationcontrollers":      cannot("replicationcontrollers: their pods are assumed"),
		"list replicasets.apps":            cannot("sets.apps: their pods are assumed"),
		"list jobs.batch":                  cannot("jobs.batch: their pods are assumed"),
		"list poddisruptionbudgets.policy": cannot("poddisruptionbudgets.policy: no pod is flagged"),
		"list persistentvolumeclaims":      cannot("persistentvolumeclaims: local volumes are not seen"),
		"list nodeclaims.karpenter.sh":     cannot("nodeclaims.karpenter.sh: a Karpenter node is seen to go only"),
		"list namespaces":                  cannot("namespaces: namespace selectors"),
		"list widgets.example.com":         cannot("widgets.example.com"),
		"list podlosses.rollcall.dev":      cannot("podlosses of all namespaces"),
	}, func(l *lab, texts []string) (*door, string) {
		d, kubeconfig := l.through(who)
		for _, ask := range o.questions() {
			if line, found := lineWith(l.ask(kubeconfig, ask...), texts); found {
				return d, line
			}
		}
		l.Fatalf("nothing that was asked says %q", texts)
		return nil, ""
	})
}

// The same of one who has the role in the controller's namespace alone, and watches the stream.
func TestWatcherWithoutOneRule(t *testing.T) {
	l := newLab(t, withController)
	l.install(serviceAccount("watcher"))
	l.install(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": "watcher", "namespace": system},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "rollcall-viewer"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "watcher", "namespace": "default"}},
	}})
	s, who := l.newStage("proof-watched"), l.unbound("default", "watcher")
	l.takeAway(who, l.roles("rollcall-viewer", "Role"), map[string][]string{
		"get leases.coordination.k8s.io": {"may not", "leases"},
		"get pods":                       {"may not", "pods"},
		"get pods/portforward":           {"may not", "pods/portforward"},
	}, func(l *lab, texts []string) (*door, string) {
		d, kubeconfig := l.through(who)
		said := l.ask(kubeconfig, s.question()...)
		line, found := lineWith(said, texts)
		if !found {
			l.Errorf("the stream says %q, want %q", said, texts)
		}
		return d, line
	})
}

// roles are the chart's of that name, and the one for Events beside it; of that kind where one is given.
func (l *lab) roles(name string, kind ...string) (roles []*unstructured.Unstructured) {
	for _, object := range l.chart {
		if strings.TrimSuffix(object.GetName(), "-events") == name && len(rulesOf(l.T, object)) > 0 && (len(kind) == 0 || kind[0] == object.GetKind()) {
			roles = append(roles, object)
		}
	}
	return roles
}

// takeAway takes each rule from the roles in turn, and prints what came of it. said has for the first right of each rule what
// the program then says, in one line.
func (l *lab) takeAway(who identity, roles []*unstructured.Unstructured, said map[string][]string, try trial) {
	l.Helper()
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "TAKEN AWAY\tREFUSED, FOR ONE\tWHAT THE PROGRAM SAYS")
	for _, object := range roles {
		rules := rulesOf(l.T, object)
		for i, rule := range rules {
			texts, known := said[rightsOf(rule)[0].String()]
			if !known {
				l.Errorf("what comes of a missing right to %s is not known", join(rightsOf(rule)))
				continue
			}
			l.Run(describe(rule), func(t *testing.T) {
				l := *l
				l.T = t
				l.setRules(object, slices.Delete(slices.Clone(rules), i, i+1))
				t.Cleanup(func() { l.setRules(object, rules) })
				l.may(who, rule, object.GetNamespace(), false)
				d, line := try(&l, texts)
				fmt.Fprintf(rows, "%s\t%s\t%s\n", describe(rule), refusedOf(&l, d, rule), excerpt(line))
			})
			l.may(who, rule, object.GetNamespace(), true)
		}
	}
	l.must(rows.Flush())
	l.Logf("%s, one rule after the other:\n%s", who.account, table.String())
}

// refusedOf names one of the rights of the rule that were refused, of which there must be one, and fails where others were.
func refusedOf(l *lab, d *door, rule rbacv1.PolicyRule) string {
	l.Helper()
	refused := map[right]bool{}
	for _, q := range d.refused() {
		if !slices.Contains(rightsOf(rule), q.right) {
			l.Errorf("without the right to %s, another was refused: %s", join(rightsOf(rule)), q)
		}
		refused[q.right] = true
	}
	if len(refused) == 0 {
		l.Errorf("without the right to %s, nothing was refused: it is not needed", join(rightsOf(rule)))
	}
	return sorted(refused)[0].String()
}

// describe names a rule in few words.
func describe(rule rbacv1.PolicyRule) string {
	text := strings.Join(rule.Verbs, ",") + " " + strings.Join(rule.Resources, ",")
	if group := rule.APIGroups[0]; group != "" {
		text += " (" + group + ")"
	}
	return text
}

// forbidden is the API server's own sentence, which is the same for all.
var forbidden = regexp.MustCompile(` is forbidden: User .*? (at the cluster scope|in the namespace [^;]*)`)

// excerpt is what matters of a line of a log, as long as a table has room for.
func excerpt(line string) string {
	if _, after, ok := strings.Cut(line, "msg="); ok {
		line = after
	}
	line = forbidden.ReplaceAllString(line, " is forbidden")
	const most = 200
	if len(line) > most {
		line = line[:most] + "…"
	}
	return line
}

// setRules makes the installed role have these rules.
func (l *lab) setRules(role *unstructured.Unstructured, rules []rbacv1.PolicyRule) {
	l.Helper()
	text, err := json.Marshal(map[string]any{"rules": rules})
	l.must(err)
	_, err = l.dynamic.Resource(kinds[role.GetKind()]).Namespace(role.GetNamespace()).
		Patch(context.WithoutCancel(l.Context()), role.GetName(), types.MergePatchType, text, metav1.PatchOptions{})
	l.must(err)
}

// may waits until the API server takes the rights of the rule for granted, or for not granted.
func (l *lab) may(who identity, rule rbacv1.PolicyRule, namespace string, want bool) {
	l.Helper()
	asked := rightsOf(rule)[0]
	resource, subresource, _ := strings.Cut(asked.resource, "/")
	attributes := authorizationv1.ResourceAttributes{Verb: asked.verb, Group: asked.group, Resource: resource, Subresource: subresource, Namespace: namespace}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + who.namespace + ":" + who.account, ResourceAttributes: &attributes,
	}}
	l.eventually(fmt.Sprintf("%s may %s: %t", who.account, asked, want), func(ctx context.Context) (bool, error) {
		answer, err := l.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed == want, err
	})
}
