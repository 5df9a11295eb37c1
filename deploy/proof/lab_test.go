package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

// system is the namespace that the chart is installed in.
const system = "rollcall-system"

// home is the node of the controllers' pods, which is of no concern to them.
const home = "home"

// patience bounds every wait.
const patience = 2 * time.Minute

// kinds are those of the chart that are installed here: all that say who may do what. Nothing runs from images.
var kinds = map[string]schema.GroupVersionResource{
	"ServiceAccount":                   {Version: "v1", Resource: "serviceaccounts"},
	"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"Role":                             {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	"CustomResourceDefinition":         {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

var losses = schema.GroupVersionResource{Group: "rollcall.dev", Version: "v1alpha1", Resource: "podlosses"}

// A lab is the shared cluster with the chart's accounts, roles and policies, and the programs to run.
type lab struct {
	*testing.T
	cluster *livecluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	chart   []*unstructured.Unstructured
}

// programs builds all three once for the tests of this package.
var programs = sync.OnceValues(func() (*liverollcall.Binaries, error) {
	return liverollcall.Build(context.Background(), binariesDir, liverollcall.Controller, liverollcall.Agent, liverollcall.Plugin)
})

var binariesDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rollcall-proof")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binariesDir = dir
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// newLab installs the chart with the values, and takes it away when the test ends. Karpenter's definitions stay.
func newLab(t *testing.T, values string) *lab {
	t.Helper()
	l := &lab{T: t, cluster: livecluster.Shared(t)}
	l.client, l.dynamic = kubernetes.NewForConfigOrDie(l.cluster.Config()), dynamic.NewForConfigOrDie(l.cluster.Config())
	l.makeNamespace(system)
	for _, text := range [][]byte{karpapis.NodeClaimCRD, karpapis.NodePoolCRD} {
		for _, object := range decode(t, text) {
			l.install(object)
		}
	}
	l.install(widgets())
	_, err := l.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		l.must(err)
	}
	l.chart = render(t, values)
	for _, object := range l.chart {
		if _, ok := kinds[object.GetKind()]; ok {
			l.install(object)
		}
	}
	return l
}

// programs are rollcall's, built.
func (l *lab) programs() *liverollcall.Binaries {
	l.Helper()
	built, err := programs()
	l.must(err)
	return built
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

func (l *lab) makeNamespace(name string) {
	l.Helper()
	_, err := l.client.CoreV1().Namespaces().Create(l.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		l.must(err)
	}
}

// install makes the object what it is to be. All but definitions go when the test ends.
func (l *lab) install(object *unstructured.Unstructured) {
	l.Helper()
	client := l.dynamic.Resource(kinds[object.GetKind()]).Namespace(object.GetNamespace())
	_, err := client.Apply(l.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "proof", Force: true})
	l.must(err)
	if object.GetKind() == "CustomResourceDefinition" {
		l.eventually(object.GetName()+" is served", func(ctx context.Context) (bool, error) {
			served, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return established(served), nil
		})
		return
	}
	l.Cleanup(func() { _ = client.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{}) })
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// widgets defines a kind that owns pods and is no built-in one.
func widgets() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"kind": "Widget", "plural": "widgets", "singular": "widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
}

// render is what the chart makes of the values.
func render(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return decode(t, helm(t, "template", "rollcall", path(t, "deploy/chart"), "-n", system, "-f", file))
}

// helm runs tools/helm.
func helm(t *testing.T, args ...string) []byte {
	t.Helper()
	command := exec.Command("go", append([]string{"run", "."}, args...)...)
	command.Dir = path(t, "tools/helm")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("helm %q: %v\n%s", args, err, stderr.String())
	}
	return out
}

func decode(t *testing.T, text []byte) (objects []*unstructured.Unstructured) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := map[string]any{}
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		case len(object) > 0:
			objects = append(objects, &unstructured.Unstructured{Object: object})
		}
	}
}

// says waits for a line of the program that has all the texts, and returns it.
func (l *lab) says(p *liverollcall.Program, texts ...string) (line string) {
	l.Helper()
	l.eventually(fmt.Sprintf("the program says %q", texts), func(context.Context) (bool, error) {
		said, err := p.Said()
		if err != nil {
			return false, err
		}
		var found bool
		if line, found = lineWith(said, texts); !found {
			return false, fmt.Errorf("it said:\n%s", said)
		}
		return true, nil
	})
	return line
}

func lineWith(said string, texts []string) (string, bool) {
	for line := range strings.Lines(said) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return strings.TrimSpace(line), true
		}
	}
	return "", false
}
