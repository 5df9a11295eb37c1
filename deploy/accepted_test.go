package deploy_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var podLosses = schema.GroupVersionResource{Group: "rollcall.dev", Version: "v1alpha1", Resource: "podlosses"}

func kindOf(group, kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Resource: kind}
}

// warnings collects what the API server warns of.
type warnings struct {
	mu   sync.Mutex
	said []string // guarded by mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// Every object of every value set, and of the plain manifests, is accepted by a real API server, with every field known to it
// and without a warning. Nothing is stored.
func TestEveryObjectIsAccepted(t *testing.T) {
	l := newLab(t)
	l.define(foreignCRDs(t)...)
	l.makeNamespace(namespace, nil)
	config := l.cluster.Config()
	heard := &warnings{}
	config.WarningHandler = heard
	l.dynamic = dynamic.NewForConfigOrDie(config)
	strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	for _, set := range append(slices.Clone(valueSets), "install", "sidecar-manifests") {
		file := valueSet(set)
		switch set {
		case "install":
			file = "manifests/install-values.yaml"
		case "sidecar-manifests":
			file = "manifests/sidecar-values.yaml"
		}
		all := objects(t, render(t, file))
		for _, object := range all {
			name := object.GetName()
			if object.GetKind() == "Namespace" { // that of this test has the name
				object.SetName("")
				object.SetGenerateName(name + "-")
			}
			if _, err := l.resource(object).Create(t.Context(), object, strict); err != nil {
				t.Errorf("%s: %s %s: %v", set, object.GetKind(), name, err)
			}
		}
		t.Logf("%-18s %2d objects accepted", set, len(all))
	}
	if len(heard.said) > 0 {
		t.Errorf("the API server warns: %q", heard.said)
	}
}

// The pods pass too, which only the making of pods checks: the controller where Pod Security is "restricted", the agent in
// the level that the namespace has. A field that does not exist is refused, or the test above would mean nothing.
func TestPodsAreAccepted(t *testing.T) {
	l := newLab(t)
	for kind, level := range map[string]string{"Deployment": "restricted", "DaemonSet": "privileged"} {
		space := "accepts-" + level
		l.makeNamespace(space, map[string]string{"pod-security.kubernetes.io/enforce": level})
		for _, set := range []string{"default", "all"} {
			template := podTemplate(t, objects(t, render(t, valueSet(set))), kind)
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: template.Spec.ServiceAccountName, Namespace: space}}
			if set == "default" {
				_, err := l.client.CoreV1().ServiceAccounts(space).Create(t.Context(), account, metav1.CreateOptions{})
				l.must(err)
			}
			pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Name = "pod"
			strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			if _, err := l.client.CoreV1().Pods(space).Create(t.Context(), pod, strict); err != nil {
				t.Errorf("%s of %s: %v", kind, set, err)
			}
			pod.Spec.HostPID = true
			if _, err := l.client.CoreV1().Pods(space).Create(t.Context(), pod, strict); (err == nil) != (level == "privileged") {
				t.Errorf("%s of %s with the host's processes: %v", kind, set, err)
			}
		}
	}
}

// podTemplate is that of the object of the kind.
func podTemplate(t *testing.T, all []*unstructured.Unstructured, kind string) *corev1.PodTemplateSpec {
	t.Helper()
	for _, object := range all {
		if object.GetKind() != kind {
			continue
		}
		// A Deployment and a DaemonSet have their templates at the same place.
		var made appsv1.Deployment
		content := map[string]any{"spec": map[string]any{"template": must(t, object, "spec", "template")}}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &made); err != nil {
			t.Fatal(err)
		}
		return &made.Spec.Template
	}
	t.Fatal(fmt.Errorf("no %s", kind))
	return nil
}

func must(t *testing.T, object *unstructured.Unstructured, path ...string) map[string]any {
	t.Helper()
	value, found, err := unstructured.NestedMap(object.Object, path...)
	if err != nil || !found {
		t.Fatalf("%s of %s: %v", path, object.GetName(), err)
	}
	return value
}
