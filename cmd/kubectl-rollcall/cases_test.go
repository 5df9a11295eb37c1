package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// caseDirs hold the cases: those of the verdicts' rules, and those of the neighbours' (docs/verdicts.md).
var caseDirs = []string{"../../karpenter/check/testdata/fate", "../../karpenter/check/testdata/neighbours"}

// A wantedReport is a NAME.want.json; fields that it leaves out are free.
type wantedReport struct {
	Now   string       `json:"now"`
	Nodes []wantedNode `json:"nodes"`
	Exit  int          `json:"exit"`
}

type wantedNode struct {
	Name       string       `json:"name"`
	State      words        `json:"state"`
	Cause      words        `json:"cause"`
	Stale      *bool        `json:"stale"`
	Deadline   *string      `json:"deadline"`
	Pods       []wantedPod  `json:"pods"`
	Collateral *[]wantedPod `json:"collateral"`
}

type wantedPod struct {
	On        string   `json:"on"`
	Pod       string   `json:"pod"`
	Verdict   words    `json:"verdict"`
	Reason    words    `json:"reason"`
	Certainty words    `json:"certainty"`
	Placement words    `json:"placement"`
	Flags     []string `json:"flags"`
	NotFlags  []string `json:"notFlags"`
}

// words is one right answer or a list of them; nil where any is right.
type words []string

func (w *words) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(w))
}

type gotReport struct {
	Nodes []struct {
		Name       string `json:"name"`
		Disruption struct {
			State    string `json:"state"`
			Cause    string `json:"cause"`
			Deadline string `json:"deadline"`
			Stale    bool   `json:"stale"`
		} `json:"disruption"`
		Pods       []gotPod `json:"pods"`
		Collateral []gotPod `json:"collateral"`
	} `json:"nodes"`
}

type gotPod struct {
	On        string   `json:"on"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Verdict   string   `json:"verdict"`
	Reason    string   `json:"reason"`
	Certainty string   `json:"certainty"`
	Placement string   `json:"placement"`
	Flags     []string `json:"flags"`
}

func TestCases(t *testing.T) {
	var files []string
	for _, dir := range caseDirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.want.json"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no cases in %s: %v", dir, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".want.json")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want wantedReport
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			args := []string{"check", "-f", strings.TrimSuffix(file, ".want.json") + ".yaml", "-o", "json"}
			if want.Now != "" {
				args = append(args, "--now", want.Now)
			}
			r := rollcall(t, nil, args...)
			var got gotReport
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
				t.Fatalf("no report: %v\n%s", err, r.stderr)
			}
			c := comparison{t: t}
			c.equal("exit status", r.status, want.Exit)
			c.report(got, want)
		})
	}
}

// A comparison reports all differences, each on a line that says where.
type comparison struct{ t *testing.T }

func (c comparison) equal(where string, got, want any) {
	c.t.Helper()
	if got != want {
		c.t.Errorf("%s: got %v, want %v", where, got, want)
	}
}

func (c comparison) among(where, got string, want words) {
	c.t.Helper()
	if want != nil && !slices.Contains(want, got) {
		c.t.Errorf("%s: got %q, want %s", where, got, strings.Join(want, " or "))
	}
}

func (c comparison) report(got gotReport, want wantedReport) {
	c.t.Helper()
	nodes := map[string]wantedNode{}
	for _, n := range want.Nodes {
		nodes[n.Name] = n
	}
	for _, n := range got.Nodes {
		w, ok := nodes[n.Name]
		delete(nodes, n.Name)
		if !ok {
			c.t.Errorf("%s: a node too many, or twice", n.Name)
			continue
		}
		c.among(n.Name+": state", n.Disruption.State, w.State)
		c.among(n.Name+": cause", n.Disruption.Cause, w.Cause)
		if w.Stale != nil {
			c.equal(n.Name+": stale", n.Disruption.Stale, *w.Stale)
		}
		if w.Deadline != nil {
			c.equal(n.Name+": deadline", moment(n.Disruption.Deadline), moment(*w.Deadline))
		}
		c.pods(n.Name, n.Pods, w.Pods)
		if w.Collateral != nil {
			c.pods(n.Name+": collateral", n.Collateral, *w.Collateral)
		}
	}
	for name := range nodes {
		c.t.Errorf("%s: the node is missing", name)
	}
}

func moment(text string) string {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC().Format(time.RFC3339)
	}
	return text
}

func (c comparison) pods(where string, got []gotPod, want []wantedPod) {
	c.t.Helper()
	pods := map[string]wantedPod{}
	for _, p := range want {
		pods[p.On+" "+p.Pod] = p
	}
	for _, p := range got {
		key := p.On + " " + p.Namespace + "/" + p.Name
		w, ok := pods[key]
		delete(pods, key)
		at := fmt.Sprintf("%s: %s", where, strings.TrimSpace(key))
		if !ok {
			c.t.Errorf("%s: a pod too many, or twice (%s %s)", at, p.Verdict, p.Reason)
			continue
		}
		c.among(at+": verdict", p.Verdict, w.Verdict)
		c.among(at+": reason", p.Reason, w.Reason)
		c.among(at+": certainty", p.Certainty, w.Certainty)
		c.among(at+": placement", p.Placement, w.Placement)
		for _, f := range w.Flags {
			if !slices.Contains(p.Flags, f) {
				c.t.Errorf("%s: flag %s is missing from %v", at, f, p.Flags)
			}
		}
		for _, f := range w.NotFlags {
			if slices.Contains(p.Flags, f) {
				c.t.Errorf("%s: flag %s is wrong", at, f)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		c.t.Errorf("%s: %s: the pod is missing", where, strings.TrimSpace(key))
	}
}
