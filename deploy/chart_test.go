package deploy_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

var update = flag.Bool("update", false, "write manifests/ anew")

func TestChartLints(t *testing.T) {
	for _, set := range valueSets {
		if out, err := tool(t, "helm", "lint", "chart", "-n", namespace, "-f", valueSet(set)); err != nil {
			t.Errorf("%s: %v\n%s", set, err, out)
		}
	}
}

// What each value set is made of.
func TestChartKinds(t *testing.T) {
	common := []string{"DaemonSet rollcall-agent", "CustomResourceDefinition podlosses.rollcall.dev", "ServiceAccount rollcall-agent"}
	deployment := []string{"Deployment rollcall-controller", "PodDisruptionBudget rollcall-controller", "ServiceAccount rollcall-controller"}
	options := []string{
		"Namespace rollcall-system", "PodMonitor rollcall-controller", "PrometheusRule rollcall", "ConfigMap rollcall-dashboard",
		"NodeReadinessRule static-pods-mirrored", "ResourceQuota rollcall",
	}
	for set, want := range map[string]struct{ has, lacks []string }{
		"default":    {append(deployment, common...), options},
		"sidecar":    {append(common, "PodMonitor rollcall-controller"), append(deployment, "PrometheusRule rollcall", "ConfigMap rollcall-dashboard")},
		"standalone": {common, append(deployment, options...)},
		"all":        {slices.Concat(common, deployment, options), nil},
	} {
		var got []string
		for _, object := range objects(t, render(t, valueSet(set))) {
			got = append(got, object.GetKind()+" "+object.GetName())
		}
		for _, name := range want.has {
			if !slices.Contains(got, name) {
				t.Errorf("%s: no %s in %v", set, name, got)
			}
		}
		for _, name := range want.lacks {
			if slices.Contains(got, name) {
				t.Errorf("%s: has %s", set, name)
			}
		}
	}
}

func TestChartRefusesMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ values, want string }{
		"unknown value":        {"controler: {replicas: 1}", "controler"},
		"unknown inner value":  {"controller: {replica: 1}", "replica"},
		"wrong type":           {"controller: {replicas: two}", "replicas"},
		"verdict":              {"controller: {mark: [Returns]}", "mark"},
		"duration":             {"controller: {heldWarning: 5 minutes}", "heldWarning"},
		"taint of another":     {"controller: {readinessTaint: example.com/x}", "readinessTaint"},
		"http":                 {"agent: {apiServer: \"http://10.0.0.10\"}", "apiServer"},
		"empty selector":       {"readinessRule: {create: true, nodeSelector: null}", "nodeSelector"},
		"two writers":          {"agent: {standalone: true}", "set controller.mode to None"},
		"no source":            {"agent: {podsAPIDirectory: \"\", manifests: {path: \"\"}}", "no way to learn the static pods"},
		"mount beside":         {"agent: {manifests: {path: /etc/kubelet.d}}", "give the directory above it"},
		"mount of a like name": {"agent: {manifests: {path: /etc/kubernetes-manifests/x}}", "give the directory above it"},
		"no agent replaced":    {"agent: {maxUnavailable: 0}", "maxUnavailable"},
		"no agent of many":     {"agent: {maxUnavailable: 0%}", "maxUnavailable"},
		"too many agents":      {"agent: {maxUnavailable: 101%}", "maxUnavailable"},
		"own common label":     {"commonLabels: {app.kubernetes.io/name: x}", "commonLabels"},
		"own pod label":        {"agent: {podLabels: {app.kubernetes.io/component: x}}", "podLabels"},
		"own label of a pod":   {"controller: {podLabels: {app.kubernetes.io/version: x}}", "podLabels"},
		"interval in parts":    {"podMonitor: {interval: 1.5m}", "interval"},
		"interval backwards":   {"podMonitor: {interval: 30s1m}", "interval"},
		"empty interval":       {"podMonitor: {interval: \"\"}", "interval"},
		"alerts about nobody":  {"{controller: {mode: None}, agent: {standalone: true}, prometheusRule: {create: true}}", "about the controller"},
		"metrics of nobody":    {"{controller: {mode: None}, agent: {standalone: true}, podMonitor: {create: true}}", "about the controller"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(tc.values), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := tool(t, "helm", "template", "rollcall", "chart", "-n", namespace, "-f", file)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}

// What "helm uninstall" removes takes nothing along that cannot be had again: it keeps the definition of the records.
func TestChartKeepsTheRecords(t *testing.T) {
	for _, set := range valueSets {
		for _, object := range objects(t, render(t, valueSet(set))) {
			if object.GetKind() == "CustomResourceDefinition" && object.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s: helm uninstall deletes %s, and all of its objects", set, object.GetName())
			}
		}
	}
}

// No two objects have the same name, wherever rollcall is installed: the second would take the place of the first.
func TestChartNamesAreUnique(t *testing.T) {
	for _, set := range valueSets {
		for _, space := range []string{namespace, "default", "kube-system"} {
			out, err := tool(t, "helm", "template", "rollcall", "chart", "-n", space, "-f", valueSet(set))
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, object := range objects(t, out) {
				name := fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
				if seen[name] {
					t.Errorf("%s in namespace %s: two of %s", set, space, name)
				}
				seen[name] = true
			}
		}
	}
}

// The values that the agent and the controller have in common reach the agent that works alone.
func TestChartTellsTheStandaloneAgent(t *testing.T) {
	args := podTemplate(t, objects(t, render(t, valueSet("standalone"))), "DaemonSet").Spec.Containers[0].Args
	for _, want := range []string{
		"--standalone", "--readiness-taint=readiness.k8s.io/StaticPods", "--condition=readiness.example.com/StaticPodsMirrored", "--settle=1s", "--held-warning=5m",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
}

// What the policies refuse is answered as what the roles refuse: programs and alerts know both by 403.
func TestChartPoliciesForbid(t *testing.T) {
	policies := 0
	for _, set := range valueSets {
		for _, object := range objects(t, render(t, valueSet(set))) {
			validations, _, _ := unstructured.NestedSlice(object.Object, "spec", "validations")
			for _, v := range validations {
				policies++
				if v := v.(map[string]any); v["reason"] != "Forbidden" {
					t.Errorf("%s: %s: %v", set, object.GetName(), v)
				}
			}
		}
	}
	if policies < 20 {
		t.Errorf("only %d validations were looked at", policies)
	}
}

// An agent that acts as its own node has no rights of the chart's; everything else has them still.
func TestChartWithoutTheAgentsRights(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("rbac: {agent: false}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var controllers int
	for _, object := range objects(t, render(t, file)) {
		if !strings.Contains(object.GetAPIVersion(), "rbac.authorization.k8s.io") {
			continue
		}
		if strings.HasPrefix(object.GetName(), "rollcall-agent") {
			t.Errorf("there is a %s %s", object.GetKind(), object.GetName())
		}
		if strings.HasPrefix(object.GetName(), "rollcall-controller") {
			controllers++
		}
	}
	if controllers != 6 {
		t.Errorf("the controller has %d roles and bindings, want 6", controllers)
	}
}

// With the controller in Karpenter's pod its values are arguments that the chart prints; those in deploy/sidecar are its defaults.
func TestChartPrintsTheSidecarsArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("controller: {mode: Sidecar, releaseTaint: true, mark: [Lost, Stranded]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := tool(t, "helm", "notes", "rollcall", "chart", "-n", namespace, "-f", file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("sidecar/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--release-taint", "--mark=Lost,Stranded"}
	containers, _, _ := unstructured.NestedSlice(objects(t, string(text))[0].Object, "controller", "sidecarContainer")
	for _, container := range containers {
		args, _, _ := unstructured.NestedStringSlice(container.(map[string]any), "args")
		want = append(want, args...)
	}
	if len(want) < 5 {
		t.Fatalf("deploy/sidecar has the arguments %q", want)
	}
	for _, arg := range want {
		if !strings.Contains(said, "\n        - "+arg+"\n") {
			t.Errorf("the notes lack %s:\n%s", arg, said)
		}
	}
}

// The plain manifests are the chart's, rendered: go test ./deploy -run TestManifests -update writes them.
func TestManifests(t *testing.T) {
	for _, name := range []string{"install", "sidecar"} {
		file := filepath.Join("manifests", name+".yaml")
		want := "# Rendered from deploy/chart with " + name + "-values.yaml beside this file. Change the chart, then run\n" +
			"# go test ./deploy -run TestManifests -update\n" + render(t, filepath.Join("manifests", name+"-values.yaml"))
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the chart renders: go test ./deploy -run TestManifests -update", file)
		}
	}
}

// The rule for people who have no Helm is the chart's.
func TestReadinessRuleIsTheCharts(t *testing.T) {
	text, err := os.ReadFile("readiness-rule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plain := objects(t, string(text))[0]
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("readinessRule: {create: true}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, object := range objects(t, render(t, file)) {
		if object.GetKind() == plain.GetKind() {
			if !reflect.DeepEqual(object.Object["spec"], plain.Object["spec"]) || object.GetName() != plain.GetName() {
				t.Errorf("chart: %v\nreadiness-rule.yaml: %v", object.Object, plain.Object)
			}
			return
		}
	}
	t.Error("the chart renders no rule")
}

// The programs know every flag that the chart gives them, with its value.
func TestProgramsKnowTheirFlags(t *testing.T) {
	binaries, err := liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller, liverollcall.Agent)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range valueSets {
		for _, object := range objects(t, render(t, valueSet(set))) {
			if object.GetKind() != "Deployment" && object.GetKind() != "DaemonSet" {
				continue
			}
			container := podTemplate(t, []*unstructured.Unstructured{object}, object.GetKind()).Spec.Containers[0]
			program := filepath.Join(binaries.Dir, image(container))
			out, err := exec.CommandContext(t.Context(), program, append(container.Args, "--help")...).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %s %q: %v\n%s", set, image(container), container.Args, err, out)
			}
			if _, err := exec.CommandContext(t.Context(), program, append(container.Args, "--no-such-flag", "--help")...).CombinedOutput(); err == nil {
				t.Errorf("%s: any flag will do", image(container))
			}
		}
	}
}
