package truth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter/check"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// A row is one pod of a round: the verdict that check gave and what became of it.
type row struct {
	scenario string
	pod      *corev1.Pod // when the verdicts were taken
	onGoing  bool
	// named says that check answered for the pod; a pod on the node that stays is named only where the other costs it.
	named   bool
	verdict check.Pod
	// want is what the scenario expects; listed says that it has an expectation for this pod.
	want    expectation
	listed  bool
	kept    bool // the drain left the pod alone
	outcome outcome
	drained bool // the row is of the drained round
}

// record is a round: one row for each pod of its namespace.
type record []row

// rows joins the pods that exist with the answers of check. A pod that is not in both is an error, except on the node that
// stays, where silence means that nothing happens to it.
func (s *site) rows(node *check.Node) record {
	answers := map[types.UID]check.Pod{}
	for _, p := range node.Pods {
		answers[p.UID] = p
	}
	for _, c := range node.Collateral {
		answers[c.UID] = check.Pod{Namespace: c.Namespace, Name: c.Name, UID: c.UID, Verdict: c.Verdict, Reason: c.Reason,
			Certainty: c.Certainty, Message: c.Message}
	}
	var rows record
	for _, pod := range s.ledger.living(func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }) {
		r := row{scenario: pod.Labels[scenarioLabel], pod: pod, onGoing: pod.Spec.NodeName == s.going, drained: s.round == "drained"}
		r.verdict, r.named = answers[pod.UID]
		r.want, r.listed = s.wanted(pod, r.onGoing)
		delete(answers, pod.UID)
		rows = append(rows, r)
	}
	for _, stranger := range answers {
		s.Errorf("check answers for pod %s, which did not exist just after", stranger.Name)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(a.scenario, b.scenario), strings.Compare(partOf(a.pod), partOf(b.pod)), strings.Compare(a.pod.Name, b.pod.Name))
	})
	return rows
}

// asExpected says whether the pod has come to what the scenario knows to be right in this round.
func (r *row) asExpected() bool {
	right := r.outcome == r.expected() || r.outcome == r.want.either
	return r.listed && right && (!r.drained || r.kept == r.want.kept)
}

func (r *row) expected() outcome {
	if r.drained {
		return r.want.drained
	}
	return r.want.died
}

// A ruling on a row: whether what check said came true.
type ruling string

const (
	holds    ruling = "true"
	evicted  ruling = "true of the machine's death; the eviction's other end is in the message"
	noClaim  ruling = "no claim"
	isFalse  ruling = "FALSE"
	unspoken ruling = "unnamed and unharmed"
)

func (r *row) ruling() ruling {
	claims := claim(r.verdict.Verdict, r.verdict.Reason, r.onGoing)
	switch {
	case !r.named && !r.onGoing && (r.outcome == alive || r.pod.DeletionTimestamp != nil):
		return unspoken
	case !r.named:
		return isFalse
	case len(claims) == 0:
		return noClaim
	case slices.Contains(claims, r.outcome):
		return holds
	case r.drained && r.outcome == r.want.drained && r.want.says != "" && strings.Contains(r.verdict.Message, r.want.says):
		return evicted
	}
	return isFalse
}

// judge fails the test for every Certain verdict that did not come true, for every pod on the healthy node that was lost
// without being named, and for every pod that ended otherwise than its scenario knows.
func (rows record) judge(t *testing.T, round string) {
	t.Helper()
	for i := range rows {
		r := &rows[i]
		name := fmt.Sprintf("%s: %s (%s)", round, r.scenario, r.pod.Name)
		v := r.verdict
		if r.ruling() == isFalse && v.Certainty != fate.Assumed {
			t.Errorf("%s: the verdict %s/%s is false: %s\n\tmessage: %s", name, v.Verdict, v.Reason, r.outcome, v.Message)
		}
		if !r.listed {
			t.Errorf("%s: no scenario expects such a pod", name)
			continue
		}
		if w := r.want; r.named && (v.Verdict != w.verdict || v.Reason != w.reason || v.Certainty != w.certainty) {
			t.Errorf("%s: check says %s/%s %s, want %s/%s %s\n\tmessage: %s", name, v.Verdict, v.Reason, v.Certainty, w.verdict, w.reason, w.certainty, v.Message)
		}
		if w := r.want; w.flag != "" && !slices.Contains(v.Flags, w.flag) {
			t.Errorf("%s: flags %v lack %s", name, v.Flags, w.flag)
		}
		if w := r.want; !strings.Contains(v.Message, w.says) {
			t.Errorf("%s: the message does not say %q: %s", name, w.says, v.Message)
		}
		if !r.asExpected() {
			t.Errorf("%s: it is %s (left alone by the drain: %t), want %s (%t)", name, r.outcome, r.kept, r.expected(), r.drained && r.want.kept)
		}
	}
}

// score counts the verdicts of a round.
func (rows record) score() string {
	var certain, assumed, trueCertain, trueAssumed, byMessage, silent, unharmed, unsure int
	for i := range rows {
		r := &rows[i]
		switch ruling := r.ruling(); {
		case !r.named && !r.onGoing:
			silent++
			if ruling == unspoken {
				unharmed++
			}
		case ruling == noClaim:
			unsure++
		case r.verdict.Certainty == fate.Assumed:
			assumed++
			if ruling != isFalse {
				trueAssumed++
			}
		default:
			certain++
			if ruling != isFalse {
				trueCertain++
			}
			if ruling == evicted {
				byMessage++
			}
		}
	}
	return fmt.Sprintf("%d of %d Certain verdicts true (%d of them where the eviction ends otherwise, as the message says); "+
		"%d of %d Assumed ones; %d Unsure claim nothing; %d of %d unnamed pods on the healthy node unharmed",
		trueCertain, certain, byMessage, trueAssumed, assumed, unsure, unharmed, silent)
}

// render is the table of both rounds, a line for each pod that has a verdict, and the score.
func render(drained, died record) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SCENARIO\tVERDICT\tREASON\tCERTAINTY\tDRAINED\tDIED\tHOLDS")
	other := map[string][]*row{}
	for i := range died {
		other[died[i].key()] = append(other[died[i].key()], &died[i])
	}
	for i := range drained {
		r := &drained[i]
		if !r.named && r.ruling() != isFalse {
			continue
		}
		twin := &row{outcome: "?"}
		if twins := other[r.key()]; len(twins) > 0 {
			twin, other[r.key()] = twins[0], twins[1:]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.title(), r.verdict.Verdict, r.verdict.Reason, r.verdict.Certainty,
			r.course(), twin.outcome, both(r.ruling(), twin.ruling()))
	}
	_ = w.Flush()
	fmt.Fprintf(&out, "\ndrained: %s\ndied:    %s\n", drained.score(), died.score())
	return out.String()
}

func (r *row) key() string {
	return fmt.Sprint(r.scenario, "/", partOf(r.pod), r.onGoing, finished(r.pod))
}

func (r *row) title() string {
	title := r.scenario
	if part := partOf(r.pod); part != "" {
		title += " [" + part + "]"
	}
	if !r.onGoing {
		title += " on the healthy node"
	}
	return title
}

// course is the outcome of the drained round, with what the drain did where that was nothing.
func (r *row) course() string {
	if r.kept {
		return "left alone, then " + string(r.outcome)
	}
	return string(r.outcome)
}

func both(drained, died ruling) string {
	switch {
	case drained == died:
		return string(died)
	case drained == evicted && died == holds:
		return string(evicted)
	}
	return fmt.Sprintf("drained: %s; died: %s", drained, died)
}
