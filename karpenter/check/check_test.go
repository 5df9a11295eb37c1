package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/inventory"
)

var update = flag.Bool("update", false, "write the golden files anew")

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func load(t *testing.T, file string) *inventory.Inventory {
	t.Helper()
	inv, err := inventory.Load([]string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func ask(t *testing.T, inv *inventory.Inventory, s Selection, f Filter) *Report {
	t.Helper()
	q := Question{Config: karpenter.DefaultConfig(), Now: noon, Filter: f}
	var err error
	if q.Nodes, err = s.Select(inv, q); err != nil {
		t.Fatal(err)
	}
	return Ask(inv, q)
}

// The table is compared with testdata/table; go test ./karpenter/check -update writes it anew.
func TestTable(t *testing.T) {
	cluster := load(t, "testdata/cluster.yaml")
	for name, tc := range map[string]struct {
		selection Selection
		filter    Filter
		view      View
	}{
		"nodes":        {},
		"wide":         {view: View{Format: "wide", ShowAll: true}},
		"narrow":       {view: View{Width: 100}},
		"disrupted":    {selection: Selection{Disrupted: true}},
		"one":          {selection: Selection{Names: []string{"quiet"}}},
		"filtered":     {filter: Filter{Namespaces: []string{"etl"}, Verdicts: []fate.Verdict{fate.Lost}}},
		"none":         {selection: Selection{Labels: labels.SelectorFromSet(labels.Set{"a": "b"})}, view: View{Empty: "no node matches a=b"}},
		"by-owner":     {view: View{GroupBy: "owner"}},
		"by-owner-all": {view: View{GroupBy: "owner", ShowAll: true}},
		"by-namespace": {view: View{GroupBy: "namespace"}},
		"color":        {selection: Selection{Names: []string{"spot-1"}}, view: View{Color: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			report := ask(t, cluster, tc.selection, tc.filter)
			reword(report)
			if err := report.Write(&got, tc.view); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "table", name+".txt")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
			}
			if name != "color" && strings.Contains(got.String(), "\x1b") {
				t.Error("an escape sequence without colour")
			}
		})
	}
}

// reword puts a message of its own behind each reason: package fate may choose other words without a change here.
func reword(r *Report) {
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for j := range n.Pods {
			n.Pods[j].Message = "a sentence or two about " + string(n.Pods[j].Reason) + " that a person can act on"
		}
		for j := range n.Collateral {
			n.Collateral[j].Message = "a sentence about " + string(n.Collateral[j].Reason) + " elsewhere"
		}
	}
}

// Every field is there, and lists are lists, also for a node without pods.
func TestJSONFields(t *testing.T) {
	var out bytes.Buffer
	if err := ask(t, load(t, "testdata/cluster.yaml"), Selection{}, Filter{}).Write(&out, View{Format: "json"}); err != nil {
		t.Fatal(err)
	}
	var report struct{ Nodes []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	fields := func(where string, o any, want ...string) {
		t.Helper()
		object, ok := o.(map[string]any)
		for _, field := range want {
			if object[field] == nil {
				t.Errorf("%s: %s is missing or null", where, field)
			}
		}
		if !ok || len(object) != len(want) {
			t.Errorf("%s: %v, want the fields %v", where, o, want)
		}
	}
	for _, n := range report.Nodes {
		fields("node", n, "name", "disruption", "pods", "collateral")
		fields("disruption", n["disruption"], "state", "cause", "since", "deadline", "stale")
		for _, p := range n["pods"].([]any) {
			fields("pod", p, "namespace", "name", "uid", "verdict", "reason", "certainty", "placement", "flags", "message")
		}
		for _, c := range n["collateral"].([]any) {
			fields("collateral", c, "on", "namespace", "name", "uid", "verdict", "reason", "certainty", "message")
		}
	}
	var yamlOut bytes.Buffer
	if err := ask(t, load(t, "testdata/cluster.yaml"), Selection{}, Filter{}).Write(&yamlOut, View{Format: "yaml"}); err != nil || !strings.HasPrefix(yamlOut.String(), "nodes:\n- collateral:") {
		t.Errorf("YAML: %v\n%.200s", err, yamlOut.String())
	}
}

func TestOrderOfNodes(t *testing.T) {
	report := ask(t, load(t, "testdata/cluster.yaml"), Selection{}, Filter{})
	var names []string
	for _, n := range report.Nodes {
		names = append(names, n.Name)
	}
	want := []string{"unknown-deadline", "spot-1", "marked", "quiet", "spot-2"}
	if !slices.Equal(names, want) {
		t.Errorf("order %v, want %v", names, want)
	}
}

func TestSelect(t *testing.T) {
	inv := load(t, "testdata/cluster.yaml")
	q := Question{Config: karpenter.DefaultConfig(), Now: noon}
	for name, tc := range map[string]struct {
		selection Selection
		want      string
	}{
		"all":       {Selection{}, "quiet spot-1 spot-2 marked unknown-deadline"},
		"names":     {Selection{Names: []string{"marked", "quiet", "marked"}}, "marked quiet"},
		"labels":    {Selection{Labels: labels.SelectorFromSet(labels.Set{"karpenter.sh/capacity-type": "spot"})}, "spot-1"},
		"disrupted": {Selection{Disrupted: true}, "spot-1 marked unknown-deadline"},
	} {
		nodes, err := tc.selection.Select(inv, q)
		var names []string
		for _, n := range nodes {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
	for name, hint := range map[string]string{"spot-3": "did you mean spot-1, spot-2", "mark": "did you mean marked", "quite": "did you mean quiet"} {
		_, err := Selection{Names: []string{name}}.Select(inv, q)
		var unknown *SelectionError
		if !errors.As(err, &unknown) || !strings.HasPrefix(unknown.Hint(), hint) {
			t.Errorf("%s: %v, want the hint %q", name, err, hint)
		}
	}
}

func TestCountdown(t *testing.T) {
	for want, tc := range map[string]struct {
		deadline  time.Time
		estimated bool
	}{
		"no deadline known":    {},
		"deadline in 1m40s":    {deadline: noon.Add(100 * time.Second)},
		"deadline in about 2m": {deadline: noon.Add(2 * time.Minute), estimated: true},
		"deadline in 1h":       {deadline: noon.Add(time.Hour)},
		"deadline passed":      {deadline: noon.Add(-time.Second)},
	} {
		if got := countdown(Node{deadline: tc.deadline, estimated: tc.estimated}, noon); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTerminalsAreNotSteered(t *testing.T) {
	p := &painter{}
	p.node(Node{Name: "n\x1b[2J", Pods: []Pod{{Name: "a\nb", Verdict: fate.Lost, Message: "\u202eevil\x07"}}}, noon)
	if out := p.out.String(); strings.ContainsAny(out, "\x1b\x07\u202e") || !strings.Contains(out, "/a?b") {
		t.Errorf("%q", out)
	}
}
