package losses

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// Formats are how a report is shown: for people, for programs, and as manifests to apply.
var Formats = []string{"table", "wide", "json", "yaml"}

// Write shows the report. Errors are those of w.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "json":
		return r.json(w)
	case "yaml":
		return r.manifests(w)
	}
	return r.table(w, format == "wide")
}

func (r *Report) json(w io.Writer) error {
	type watched struct {
		Watched
		Gaps []Period `json:"gaps"`
	}
	answer := struct {
		Watched watched             `json:"watched"`
		Losses  []*v1alpha1.PodLoss `json:"losses"`
	}{watched{r.Watched, r.gaps()}, r.Records}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	return encoder.Encode(answer)
}

// table lists the records and says what they do not tell.
func (r *Report) table(w io.Writer, wide bool) error {
	var out strings.Builder
	if len(r.Records) > 0 {
		columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		header := []string{"NAMESPACE", "POD", "STATE", "WHEN", "REASON", "CAUSE", "NODE"}
		if wide {
			header = append(header, "VERDICT", "OWNER", "SINCE", "DEADLINE", "MANIFEST", "UID")
		}
		fmt.Fprintln(columns, strings.Join(header, "\t"))
		for _, record := range r.Records {
			fmt.Fprintln(columns, strings.Join(r.row(record, wide), "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "%s\n%s\n", r.summary(), clean(r.trust()))
	_, err := io.WriteString(w, out.String())
	return err
}

func (r *Report) row(record *v1alpha1.PodLoss, wide bool) []string {
	spec := record.Spec
	cells := []string{record.Namespace, spec.Pod.Name, string(record.Status.State), r.when(record), spec.Reason, spec.Cause, spec.Node}
	if wide {
		deadline, manifest := "", "no"
		if spec.Deadline != nil {
			deadline = stamp(spec.Deadline.Time)
		}
		if len(spec.Manifest) > 0 {
			manifest = "yes"
		}
		cells = append(cells, spec.Verdict, spec.Owner, stamp(spec.Since.Time), deadline, manifest, string(spec.Pod.UID))
	}
	for i, cell := range cells {
		cells[i] = clean(cell)
		if cell == "" {
			cells[i] = "-"
		}
	}
	return cells
}

// when says how long ago a record ended; of an open one, until when its pod may live.
func (r *Report) when(record *v1alpha1.PodLoss) string {
	at, over := endOf(record)
	switch deadline := record.Spec.Deadline; {
	case over && record.Status.LostAtEstimated:
		return "before " + r.ago(at)
	case over:
		return r.ago(at)
	case deadline == nil:
		return "any time"
	case deadline.After(r.Now):
		return "in " + duration.HumanDuration(deadline.Sub(r.Now))
	}
	return "now"
}

func (r *Report) ago(t time.Time) string {
	return duration.HumanDuration(max(0, r.Now.Sub(t))) + " ago"
}

// summary counts: "2 pods lost and 1 at risk in the last 24h."
func (r *Report) summary() string {
	counts := r.counts()
	text := fmt.Sprintf("%s lost and %d at risk", pods(counts[v1alpha1.Closed]), counts[v1alpha1.Open])
	if n := counts[v1alpha1.Withdrawn]; n > 0 {
		text += fmt.Sprintf(", %d withdrawn", n)
	}
	if r.From.IsZero() {
		return text + ", of all that is kept."
	}
	return text + " in the last " + duration.HumanDuration(r.Now.Sub(r.From)) + "."
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// manifests prints what kubectl apply makes the lost ownerless pods again from: of several losses under one name the last.
func (r *Report) manifests(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "# %s\n# %s\n", clean(r.summary()), clean(r.trust()))
	seen := map[string]bool{}
	for _, record := range r.Records {
		name := record.Namespace + "/" + record.Spec.Pod.Name
		if record.Status.State != v1alpha1.Closed || seen[name] {
			continue
		}
		seen[name] = true
		about := fmt.Sprintf("%s, lost %s with node %s (%s, %s)", name, stamp(timeOf(record)), record.Spec.Node, record.Spec.Cause, record.Spec.Reason)
		if len(record.Spec.Manifest) == 0 {
			fmt.Fprintf(&out, "# no manifest: %s; it belongs to %s\n", clean(about), clean(record.Spec.Owner))
			continue
		}
		text, err := yaml.JSONToYAML(record.Spec.Manifest)
		if err != nil {
			return fmt.Errorf("writing the manifest of %s: %w", name, err)
		}
		fmt.Fprintf(&out, "---\n# %s\n%s", clean(about), text)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// clean keeps texts from the cluster from steering the terminal, and from ending a comment.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, text)
}
