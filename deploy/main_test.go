// Package deploy_test holds what is installed to its word: the chart is linted and rendered by Helm's own code, the rendered
// objects are put before a real API server, and the programs run as the rendered objects say, under their identities.
package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// namespace is where everything is installed.
const namespace = "rollcall-system"

// valueSets are those of chart/ci, each of which has to work.
var valueSets = []string{"default", "sidecar", "standalone", "all"}

// tools is a directory with what main builds.
var tools string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if tools, err = os.MkdirTemp("", "rollcall-tools"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tools)
	for _, tool := range []string{"helm", "alerts"} {
		if _, err := livecluster.Tool(context.Background(), tools, tool); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// tool runs one of the tools and returns what it prints, and what it complains of.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(tools, name), args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// render returns what Helm would install with the values of a file.
func render(t *testing.T, values string) string {
	t.Helper()
	out, err := tool(t, "helm", "template", "rollcall", "chart", "-n", namespace, "-f", values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func valueSet(name string) string { return filepath.Join("chart", "ci", name+"-values.yaml") }

// objects reads YAML documents.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); err != nil {
			if err.Error() == "EOF" {
				return found
			}
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			found = append(found, &object)
		}
	}
}
