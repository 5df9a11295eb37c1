package check

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Formats are the values of --output.
var Formats = []string{"table", "wide", "json", "yaml"}

// View is how a report is shown.
type View struct {
	// Format is one of Formats.
	Format string
	// ShowAll lists every pod, not only those that are lost, stranded or unsure.
	ShowAll bool
	// GroupBy shows the nodes together, spot nodes first, by "owner" or "namespace"; empty and "node" show each by itself.
	GroupBy string
	// Empty is what people read where the report has no nodes.
	Empty string
	// Color uses ANSI colours.
	Color bool
	// Width is the terminal's, in columns; 0 breaks no line.
	Width int
}

// Write shows the report. Errors are those of w.
func (r *Report) Write(w io.Writer, v View) error {
	switch v.Format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "    ")
		return encoder.Encode(r)
	case "yaml":
		text, err := yaml.Marshal(r)
		if err != nil {
			return fmt.Errorf("writing the report as YAML: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	p := &painter{view: v}
	switch v.GroupBy {
	case "owner", "namespace":
		p.standing(r)
	default:
		p.report(r)
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}
