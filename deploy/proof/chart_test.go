package proof

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// path is that of a file of the repository.
func path(t *testing.T, file string) string {
	t.Helper()
	root, err := livecluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, file)
}

// valueSets are those that the chart is tested with.
func valueSets(t *testing.T) []string {
	t.Helper()
	sets, err := filepath.Glob(path(t, "deploy/chart/ci/*.yaml"))
	if err != nil || len(sets) < 3 {
		t.Fatalf("value sets %v: %v", sets, err)
	}
	return sets
}

// With no value set is a right asked for that makes its holder anything else: no wildcard, no secret, no way into a pod or a
// kubelet, no other identity, no role; no pod is written but through its status.
func TestRolesAskForLittle(t *testing.T) {
	never := []string{
		"secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "nodes/proxy", "nodes/log", "nodes/exec", "pods/exec", "pods/attach",
		"pods/ephemeralcontainers", "pods/eviction", "pods/binding", "services/proxy", "roles", "clusterroles", "rolebindings", "clusterrolebindings",
	}
	for _, set := range valueSets(t) {
		values, err := os.ReadFile(set)
		if err != nil {
			t.Fatal(err)
		}
		rights := 0
		for _, object := range render(t, string(values)) {
			for _, rule := range rulesOf(t, object) {
				if len(rule.NonResourceURLs) > 0 || len(rule.Verbs) == 0 || len(rule.APIGroups) == 0 {
					t.Errorf("%s: %s %s has an odd rule %v", filepath.Base(set), object.GetKind(), object.GetName(), rule)
				}
				for _, r := range rightsOf(rule) {
					rights++
					writes := slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.verb)
					whole := r.group == "" && (r.resource == "pods" || r.resource == "nodes" && !strings.Contains(string(values), "releaseTaint: true"))
					if strings.Contains(r.String(), "*") || slices.Contains(never, r.resource) || writes && whole ||
						slices.Contains([]string{"impersonate", "escalate", "bind", "deletecollection"}, r.verb) ||
						r.resource == "nodes/pods" && !strings.Contains(string(values), "kubeletPodsURL") {
						t.Errorf("%s: %s %s may %s", filepath.Base(set), object.GetKind(), object.GetName(), r)
					}
				}
			}
		}
		if rights < 8 {
			t.Errorf("%s: only %d rights were looked at", filepath.Base(set), rights)
		}
	}
}

// Every rule stands below a comment that names the code that needs it, and that code exists.
func TestEveryRuleHasAReason(t *testing.T) {
	files, err := filepath.Glob(path(t, "deploy/chart/templates/rbac-*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	rules := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if !strings.HasPrefix(strings.TrimSpace(line), "- apiGroups:") {
				continue
			}
			rules++
			if above := strings.TrimSpace(lines[i-1]); !strings.HasPrefix(above, "# ") {
				t.Errorf("%s:%d: a rule without a reason", filepath.Base(file), i+1)
			}
		}
		for word := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return strings.ContainsRune(" (),:;\n", r) }) {
			word = strings.TrimSuffix(word, ".")
			if !strings.HasSuffix(word, ".go") || !strings.Contains(word, "/") {
				continue
			}
			if _, err := os.Stat(path(t, word)); err != nil {
				t.Errorf("%s names %s, which does not exist", filepath.Base(file), word)
			}
		}
	}
	if rules < 20 {
		t.Errorf("only %d rules were looked at", rules)
	}
}

// karpenterWithSidecar is what Karpenter's chart makes of rollcall's values for it: the pods of its Deployment.
func karpenterWithSidecar(t *testing.T) corev1.PodSpec {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter").Output()
	if err != nil {
		t.Fatal(err)
	}
	chart := filepath.Join(strings.TrimSpace(string(module)), "kwok/charts")
	objects := decode(t, helm(t, "template", "karpenter", chart, "-n", "kube-system", "-f", path(t, "deploy/sidecar/values.yaml")))
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			return podsOf(t, object)
		}
	}
	t.Fatal("Karpenter's chart makes no Deployment")
	return corev1.PodSpec{}
}

func podsOf(t *testing.T, object *unstructured.Unstructured) corev1.PodSpec {
	t.Helper()
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
		t.Fatal(err)
	}
	return deployment.Spec.Template.Spec
}

// Karpenter's own chart takes the sidecar: its container and ports stay, and rollcall's are others. The account is the one to
// which rollcall's chart gives the rights, and the container is as narrow as in a Deployment of its own.
func TestKarpentersChartTakesTheSidecar(t *testing.T) {
	pod := karpenterWithSidecar(t)
	if len(pod.Containers) != 2 || pod.Containers[0].Name != "controller" || pod.Containers[1].Name != "rollcall" {
		t.Fatalf("the containers are %+v", pod.Containers)
	}
	taken := map[int32]string{}
	for _, container := range pod.Containers {
		for _, port := range container.Ports {
			if other := taken[port.ContainerPort]; other != "" {
				t.Errorf("port %d is both %s and %s", port.ContainerPort, other, port.Name)
			}
			taken[port.ContainerPort] = port.Name
		}
	}
	sidecar := pod.Containers[1]
	if taken[8082] != "rollcall" || !slices.Contains(sidecar.Args, "--health-address=:8082") {
		t.Errorf("ports %v, arguments %v", taken, sidecar.Args)
	}
	values, err := os.ReadFile(path(t, "deploy/chart/ci/sidecar-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	bound := 0
	for _, object := range render(t, string(values)) {
		switch subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects"); {
		case object.GetKind() == "Deployment", object.GetName() == "rollcall-controller-pods":
			t.Errorf("the chart makes a %s %s", object.GetKind(), object.GetName())
		case strings.HasPrefix(object.GetName(), "rollcall-controller") && len(subjects) > 0:
			bound++
			if s := subjects[0].(map[string]any); s["name"] != pod.ServiceAccountName || s["namespace"] != "kube-system" {
				t.Errorf("%s binds %v, Karpenter's account is %s", object.GetKind(), s, pod.ServiceAccountName)
			}
		}
	}
	if bound != 3 {
		t.Errorf("%d bindings, want three", bound)
	}
	for _, object := range render(t, "") {
		if object.GetKind() != "Deployment" {
			continue
		}
		own := podsOf(t, object)
		if got, want := sidecar.SecurityContext, own.Containers[0].SecurityContext; *got.ReadOnlyRootFilesystem != *want.ReadOnlyRootFilesystem ||
			*got.AllowPrivilegeEscalation != *want.AllowPrivilegeEscalation || got.Capabilities.Drop[0] != want.Capabilities.Drop[0] ||
			*got.RunAsUser != *own.SecurityContext.RunAsUser || got.SeccompProfile.Type != own.SecurityContext.SeccompProfile.Type {
			t.Errorf("the sidecar's security context is %+v", got)
		}
	}
}
