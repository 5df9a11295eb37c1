// The helm command lints and renders charts with Helm's own code, for people and tests that have only Go: its "lint" and its
// "template" take the flags of Helm's that are used here, and mean the same by them; "notes" is what "helm install" says at its end. It
// reaches no cluster.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

const usage = `usage:
  helm lint CHART [-f VALUES]... [-n NAMESPACE]                 fails on warnings too, as with --strict
  helm template NAME CHART [-f VALUES]... [-n NAMESPACE]        prints the objects in the order of their installation
  helm notes NAME CHART [-f VALUES]... [-n NAMESPACE]           prints NOTES.txt
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "helm: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	fs := pflag.NewFlagSet("helm", pflag.ContinueOnError)
	fs.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	files := fs.StringArrayP("values", "f", nil, "")
	namespace := fs.StringP("namespace", "n", "default", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	values, err := readValues(*files)
	if err != nil {
		return err
	}
	switch args := fs.Args(); {
	case len(args) == 2 && args[0] == "lint":
		return lintChart(args[1], values, *namespace, out)
	case len(args) == 3 && args[0] == "template":
		return template(args[1], args[2], values, *namespace, out)
	case len(args) == 3 && args[0] == "notes":
		return notes(args[1], args[2], values, *namespace, out)
	}
	return errors.New("wrong usage\n" + usage)
}

// readValues merges the files; what a later one says counts.
func readValues(files []string) (map[string]any, error) {
	values := map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading values: %w", err)
		}
		more := map[string]any{}
		if err := yaml.Unmarshal(text, &more); err != nil {
			return nil, fmt.Errorf("reading values of %s: %w", file, err)
		}
		values = chartutil.MergeTables(more, values)
	}
	return values, nil
}

func lintChart(path string, values map[string]any, namespace string, out io.Writer) error {
	result := lint.All(path, values, namespace, true)
	for _, message := range result.Messages {
		fmt.Fprintln(out, message)
	}
	if result.HighestSeverity >= support.WarningSev {
		return fmt.Errorf("the chart %s does not pass", path)
	}
	return nil
}

const notesFile = "NOTES.txt"

// render returns the files that the chart makes. The schema of the values is checked on the way.
func render(name, path string, values map[string]any, namespace string) (map[string]string, error) {
	chart, err := loader.Load(path)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	full, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("reading the values: %w", err)
	}
	rendered, err := engine.Render(chart, full)
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	return rendered, nil
}

// notes prints what helm install tells the person.
func notes(name, path string, values map[string]any, namespace string, out io.Writer) error {
	rendered, err := render(name, path, values, namespace)
	if err != nil {
		return err
	}
	for file, text := range rendered {
		if filepath.Base(file) == notesFile {
			fmt.Fprintln(out, text)
		}
	}
	return nil
}

// template prints what helm install would send.
func template(name, path string, values map[string]any, namespace string, out io.Writer) error {
	rendered, err := render(name, path, values, namespace)
	if err != nil {
		return err
	}
	for file := range rendered {
		if filepath.Base(file) == notesFile {
			delete(rendered, file)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return fmt.Errorf("sorting what was rendered: %w", err)
	}
	if len(hooks) > 0 {
		return fmt.Errorf("%s is a hook: plain manifests cannot have any", hooks[0].Path)
	}
	var text bytes.Buffer
	for _, manifest := range manifests {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", manifest.Name, strings.TrimSpace(manifest.Content))
	}
	_, err = out.Write(text.Bytes())
	return err
}
