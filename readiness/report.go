package readiness

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Formats are the forms in which a Report can be written.
var Formats = []string{"table", "json", "yaml"}

// Report is the answer about one node, for people and programs (DESIGN.md section 9).
type Report struct {
	Node       string                 `json:"node"`
	Status     corev1.ConditionStatus `json:"status"`
	Reason     string                 `json:"reason"`
	Source     string                 `json:"source,omitempty"`
	Expected   []string               `json:"expected"`
	WaitingFor []string               `json:"waitingFor"`
	Ignored    []IgnoredFile          `json:"ignored"`
	Message    string                 `json:"message"`
}

// NewReport puts an evaluation into words.
func NewReport(node string, expected Expected, result Result) *Report {
	return &Report{
		Node: node, Status: result.Status, Reason: result.Reason, Source: expected.Source, Message: result.Message,
		Expected: append([]string{}, result.Expected...), WaitingFor: append([]string{}, result.WaitingFor...),
		Ignored: append([]IgnoredFile{}, expected.Ignored...),
	}
}

// Write shows the report in one of Formats. Errors are those of w.
func (r *Report) Write(w io.Writer, format string) error {
	var text []byte
	var err error
	switch format {
	case "json":
		text, err = json.MarshalIndent(r, "", "    ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(r)
	default:
		text = []byte(r.table())
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func (r *Report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", r.Node, r.Status, r.Reason)
	fmt.Fprintf(&b, "  %s\n", r.Message)
	width := 0
	for _, pod := range r.Expected {
		width = max(width, len(pod))
	}
	for _, pod := range r.Expected {
		state := "mirrored"
		if slices.Contains(r.WaitingFor, pod) {
			state = "waiting"
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", width, pod, state)
	}
	for _, file := range r.Ignored {
		fmt.Fprintf(&b, "  ignored: %s: %s\n", file.File, file.Why)
	}
	return b.String()
}
