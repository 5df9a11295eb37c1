package deploy_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// patience bounds every wait.
const patience = 2 * time.Minute

// A lab is the cluster that the tests here share.
type lab struct {
	*testing.T
	cluster *livecluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newLab(t *testing.T) *lab {
	t.Helper()
	cluster := livecluster.Shared(t)
	client := kubernetes.NewForConfigOrDie(cluster.Config())
	return &lab{
		T: t, cluster: cluster, client: client, dynamic: dynamic.NewForConfigOrDie(cluster.Config()),
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) eventually(what string, holds func(ctx context.Context) (bool, error)) {
	l.Helper()
	livecluster.Eventually(l, patience, what, holds)
}

// resource is where an object is written, in a namespace if its kind has them.
func (l *lab) resource(object *unstructured.Unstructured) dynamic.ResourceInterface {
	l.Helper()
	kind := object.GroupVersionKind()
	mapping, err := l.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	l.must(err)
	resource := l.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resource
	}
	return resource.Namespace(object.GetNamespace())
}

// apply makes objects what they are to be, in their order.
func (l *lab) apply(objects ...*unstructured.Unstructured) {
	l.Helper()
	for _, object := range objects {
		_, err := l.resource(object).Apply(l.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "installer", Force: true})
		l.must(err)
	}
}

// remove deletes objects and waits until they are gone.
func (l *lab) remove(objects ...*unstructured.Unstructured) {
	l.Helper()
	foreground := metav1.DeletePropagationForeground
	for _, object := range objects {
		if err := l.resource(object).Delete(l.Context(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground}); !apierrors.IsNotFound(err) {
			l.must(err)
		}
	}
	for _, object := range objects {
		l.eventually(object.GetKind()+" "+object.GetName()+" is gone", func(ctx context.Context) (bool, error) {
			_, err := l.resource(object).Get(ctx, object.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	}
}

// define makes the API server serve the kinds of CRDs until the test ends.
func (l *lab) define(crds ...*unstructured.Unstructured) {
	l.Helper()
	l.apply(crds...)
	for _, crd := range crds {
		l.Cleanup(func() { _ = l.resource(crd).Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{}) })
		l.eventually(crd.GetName()+" is served", func(ctx context.Context) (bool, error) {
			group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
			l.mapper.Reset()
			mappings, err := l.mapper.KindsFor(kindOf(group, kind))
			return err == nil && len(mappings) > 0, nil
		})
	}
}

// prometheusOperator is the module that has the CRDs of PodMonitor and PrometheusRule.
const prometheusOperator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// foreignCRDs are those of the kinds that the chart makes only where somebody else has defined them.
func foreignCRDs(t *testing.T) (crds []*unstructured.Unstructured) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", prometheusOperator).Output()
	if err != nil {
		t.Fatalf("fetching %s: %v", prometheusOperator, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	definitions := filepath.Join(module.Dir, "example", "prometheus-operator-crd")
	for _, file := range []string{
		filepath.Join(definitions, "monitoring.coreos.com_podmonitors.yaml"),
		filepath.Join(definitions, "monitoring.coreos.com_prometheusrules.yaml"),
		filepath.Join("testdata", "nodereadinessrules.yaml"),
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crds = append(crds, objects(t, string(text))...)
	}
	return crds
}

func (l *lab) makeNamespace(name string, labels map[string]string) {
	l.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err := l.client.CoreV1().Namespaces().Create(l.Context(), space, metav1.CreateOptions{})
	l.must(err)
	l.Cleanup(func() { _ = l.client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	l.eventually("the service account of "+name, func(ctx context.Context) (bool, error) {
		_, err := l.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
}

// makePod creates a pod without an owner on a node.
func (l *lab) makePod(namespace, name, node string) {
	l.Helper()
	_, err := l.client.CoreV1().Pods(namespace).Create(l.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}, metav1.CreateOptions{})
	l.must(err)
}

// taint sets the taints of a node, key=value:effect, to these alone.
func (l *lab) taint(node string, taints ...corev1.Taint) {
	l.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": append([]corev1.Taint{}, taints...)}})
	l.must(err)
	_, err = l.client.CoreV1().Nodes().Patch(l.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

// spot is the taint of a spot node that is taken back.
var spot = corev1.Taint{Key: "spot-interruption", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// marker is what a pod bears of rollcall's.
func (l *lab) marker(ctx context.Context, namespace, name string) (string, error) {
	pod, err := l.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return pod.Annotations["rollcall.dev/at-risk"], nil
}

// waitMark waits until the pod is marked, or not.
func (l *lab) waitMark(namespace, name string, marked bool) {
	l.Helper()
	l.eventually("the mark of "+namespace+"/"+name, func(ctx context.Context) (bool, error) {
		marker, err := l.marker(ctx, namespace, name)
		return (marker != "") == marked, err
	})
}

// image is the last element of the path of a container's image, without its tag: the program.
func image(container corev1.Container) string {
	name := container.Image[strings.LastIndex(container.Image, "/")+1:]
	name, _, _ = strings.Cut(name, ":")
	return name
}
