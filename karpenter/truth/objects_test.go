package truth

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// Cores of the machines: what fits the one that goes need not fit the one that stays.
const (
	bigNode   = 8
	smallNode = 2
)

var gibibyte = resource.MustParse("1Gi")

var (
	podResource        = corev1.SchemeGroupVersion.WithResource("pods")
	controllerResource = corev1.SchemeGroupVersion.WithResource("replicationcontrollers")
	replicaSetResource = appsv1.SchemeGroupVersion.WithResource("replicasets")
	daemonSetResource  = appsv1.SchemeGroupVersion.WithResource("daemonsets")
	setResource        = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	jobResource        = batchv1.SchemeGroupVersion.WithResource("jobs")
)

// ownerKinds are looked up by check. The cluster serves no Phantom.
var ownerKinds = []string{"argoproj.io/Workflow", "example.com/Widget", "example.org/Phantom"}

// serveKinds makes the cluster serve Workflows and Widgets, which no controller of theirs watches.
func serveKinds(t *testing.T, cluster *livecluster.Cluster) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(cluster.Config())
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	for _, kind := range []schema.GroupVersionKind{workflowKind, widgetKind} {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural.Resource + "." + kind.Group},
			"spec": map[string]any{
				"group": kind.Group, "scope": "Namespaced",
				"names": map[string]any{"kind": kind.Kind, "plural": plural.Resource},
				"versions": []any{map[string]any{
					"name": kind.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}
		if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
			t.Fatalf("defining %s: %v", kind, err)
		}
		err := wait.PollUntilContextTimeout(t.Context(), pollEvery, patience, true, func(ctx context.Context) (bool, error) {
			_, err := client.Resource(plural).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
		if err != nil {
			t.Fatalf("waiting for %s to be served: %v", kind, err)
		}
	}
}

var (
	workflowKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Workflow"}
	widgetKind   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

// custom is an object of a kind that serveKinds defines.
func (s *site) custom(kind schema.GroupVersionKind, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(kind)
	u.SetName(s.scenario)
	u.SetNamespace(s.namespace)
	return u
}

// meta is that of the scenario's object with this suffix.
func (s *site) meta(suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: s.scenario + suffix, Namespace: s.namespace, Labels: map[string]string{scenarioLabel: s.scenario}}
}

// A podMod changes a pod or a pod template.
type podMod func(*metav1.ObjectMeta, *corev1.PodSpec)

// pod runs on the node that goes, or where a podMod sends it. Its containers stop at once with 143. No controller
// takes it for its own, unless it is a member.
func (s *site) pod(suffix string, mods ...podMod) *corev1.Pod {
	template := s.template(mods...)
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = s.scenario+suffix, s.namespace
	return pod
}

func (s *site) template(mods ...podMod) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{scenarioLabel: s.scenario}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{roundLabel: s.round},
			Containers:   []corev1.Container{{Name: "c", Image: "i:1"}},
		},
	}
	for _, mod := range mods {
		mod(&t.ObjectMeta, &t.Spec)
	}
	return t
}

// selector matches the scenario's members: pods that are made from a controller's template.
func (s *site) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{scenarioLabel: s.scenario, memberLabel: ""}}
}

func (s *site) replicaSet(replicas int32, mods ...podMod) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: s.meta(""), Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: s.selector(), Template: s.template(append(mods, member)...),
	}}
}

func (s *site) replicationController(mods ...podMod) *corev1.ReplicationController {
	replicas, template := int32(1), s.template(append(mods, member)...)
	return &corev1.ReplicationController{ObjectMeta: s.meta(""), Spec: corev1.ReplicationControllerSpec{
		Replicas: &replicas, Selector: s.selector().MatchLabels, Template: &template,
	}}
}

func (s *site) statefulSet(replicas int32, mods ...podMod) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: s.meta(""), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: s.selector(), Template: s.template(append(mods, member)...),
	}}
}

// budget is a PodDisruptionBudget that allows no disruption of the scenario's one pod.
func (s *site) budget(suffix string) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{ObjectMeta: s.meta(suffix), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{scenarioLabel: s.scenario}},
	}}
}

// awaitBudget returns when the budget has counted its pod.
func (s *site) awaitBudget(suffix string) {
	s.eventually("the budget to count its pod", func() bool {
		pdb, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(s.Context(), s.scenario+suffix, metav1.GetOptions{})
		s.must(err)
		return pdb.Status.CurrentHealthy == 1
	})
}

func member(m *metav1.ObjectMeta, _ *corev1.PodSpec) { m.Labels[memberLabel] = "" }

// slow pods outlast the test, where their kubelet lives.
func slow(m *metav1.ObjectMeta, p *corev1.PodSpec) { stopsAfter(time.Hour)(m, p) }

func stopsAfter(d time.Duration) podMod {
	return func(m *metav1.ObjectMeta, p *corev1.PodSpec) {
		grace := int64(2 * d.Seconds())
		m.Annotations[stopAfter] = d.String()
		p.TerminationGracePeriodSeconds = &grace
	}
}

func once(_ *metav1.ObjectMeta, p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyNever }

func finalized(m *metav1.ObjectMeta, _ *corev1.PodSpec) {
	m.Finalizers = append(m.Finalizers, holdFinalizer)
}

func annotated(key, value string) podMod {
	return func(m *metav1.ObjectMeta, _ *corev1.PodSpec) { m.Annotations[key] = value }
}

func part(name string) podMod {
	return func(m *metav1.ObjectMeta, _ *corev1.PodSpec) { m.Labels[partLabel] = name }
}

func ownedBy(refs ...metav1.OwnerReference) podMod {
	return func(m *metav1.ObjectMeta, _ *corev1.PodSpec) { m.OwnerReferences = append(m.OwnerReferences, refs...) }
}

// beside is the reference without controller: true.
func beside(ref metav1.OwnerReference) metav1.OwnerReference {
	ref.Controller = nil
	return ref
}

// on binds the pod without the scheduler.
func on(node string) podMod {
	return func(_ *metav1.ObjectMeta, p *corev1.PodSpec) { p.NodeName = node }
}

// onlyOn binds the pod, and whoever succeeds it, to one machine.
func onlyOn(node string) podMod {
	return func(_ *metav1.ObjectMeta, p *corev1.PodSpec) { p.NodeSelector[corev1.LabelHostname] = node }
}

func cores(n int) podMod {
	return func(_ *metav1.ObjectMeta, p *corev1.PodSpec) {
		p.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(fmt.Sprint(n))}
	}
}

func memory(amount string) podMod {
	return func(_ *metav1.ObjectMeta, p *corev1.PodSpec) {
		p.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}
	}
}

func spec(change func(*corev1.PodSpec)) podMod {
	return func(_ *metav1.ObjectMeta, p *corev1.PodSpec) { change(p) }
}

// nodeRef is a reference to the Node that goes, as a controller.
func (s *site) nodeRef() metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: s.going, UID: s.node.UID, Controller: &yes}
}

func (s *site) configMap() *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: s.meta("")} }

// phantom is a reference to a controller of a kind that the cluster does not serve.
func phantom(kind, group string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: group + "/v1", Kind: kind, Name: "phantom", UID: "0b1d0c9a-0000-4000-8000-000000000001", Controller: &yes}
}

// running and terminating choose among a scenario's pods.
func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
}
func terminating(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }
