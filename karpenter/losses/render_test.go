package losses

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

func loss(name string, uid types.UID, state v1alpha1.LossState, age time.Duration) *v1alpha1.PodLoss {
	record := ended("shop", name+"."+string(uid), state, age)
	record.Spec = v1alpha1.PodLossSpec{
		Pod: v1alpha1.PodReference{Name: name, UID: uid}, Node: "n1", Verdict: "Lost", Reason: "NoController", State: "Committed",
		Cause: "spot-interruption", Since: metav1.NewTime(noon.Add(-age - time.Minute)),
		Manifest: json.RawMessage(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","uid-of-test":"` + string(uid) + `"}}`),
	}
	return record
}

func sample() []*v1alpha1.PodLoss {
	open, deadline := loss("open", "u4", v1alpha1.Open, 0), metav1.NewTime(noon.Add(90*time.Second))
	open.Spec.Deadline = &deadline
	job := loss("job", "u5", v1alpha1.Closed, 3*time.Hour)
	job.Spec.Manifest, job.Spec.Owner, job.Spec.Reason, job.Status.LostAtEstimated = nil, "Job/etl", "JobWillNotRetry", true
	return []*v1alpha1.PodLoss{
		loss("web", "u1", v1alpha1.Closed, 2*time.Hour), loss("web", "u2", v1alpha1.Closed, time.Hour),
		loss("calm", "u3", v1alpha1.Withdrawn, time.Hour), open, job, loss("old", "u6", v1alpha1.Closed, 48*time.Hour),
	}
}

var watchedAll = Watched{Periods: []Period{{From: noon.Add(-100 * time.Hour)}}, Now: true}

func write(t *testing.T, r *Report, format string) string {
	t.Helper()
	var out strings.Builder
	if err := r.Write(&out, format); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTable(t *testing.T) {
	r := NewReport(sample(), watchedAll, noon.Add(-24*time.Hour), noon, false)
	const want = `NAMESPACE  POD   STATE   WHEN           REASON           CAUSE              NODE
shop       open  Open    in 90s         NoController     spot-interruption  n1
shop       web   Closed  60m ago        NoController     spot-interruption  n1
shop       web   Closed  120m ago       NoController     spot-interruption  n1
shop       job   Closed  before 3h ago  JobWillNotRetry  spot-interruption  n1

3 pods lost and 1 at risk in the last 24h.
Recorded without a gap for all of that time.
`
	if got := write(t, r, "table"); got != want {
		t.Errorf("got\n%s", got)
	}
	all := write(t, NewReport(sample(), watchedAll, time.Time{}, noon, true), "wide")
	for _, text := range []string{"calm", "old", "Job/etl", "2026-12-01T12:01:30Z", "u6", "4 pods lost and 1 at risk, 1 withdrawn, of all that is kept."} {
		if !strings.Contains(all, text) {
			t.Errorf("%q is missing in\n%s", text, all)
		}
	}
}

// An answer of nothing says how far it can be trusted.
func TestTrust(t *testing.T) {
	day := noon.Add(-24 * time.Hour)
	for name, tc := range map[string]struct {
		watched Watched
		from    time.Time
		want    string
	}{
		"all of it":       {watchedAll, day, "Recorded without a gap for all of that time."},
		"since forever":   {watchedAll, time.Time{}, "Recorded without a gap since 2026-11-27T08:00:00Z; what was lost before is not known."},
		"nothing known":   {Watched{Unknown: "you may not read the Lease a/b"}, day, "is not known: you may not read the Lease a/b."},
		"began later":     {Watched{Periods: []Period{{From: minute(-60)}}, Now: true}, day, "is not known: 2026-11-30T12:00:00Z to 2026-12-01T11:00:00Z."},
		"nobody does now": {Watched{Periods: []Period{{From: day, To: minute(-10)}}}, day, "is not known: 2026-12-01T11:50:00Z to now (no controller records now)."},
	} {
		text := write(t, NewReport(nil, tc.watched, tc.from, noon, false), "table")
		if !strings.HasPrefix(text, "0 pods lost and 0 at risk") || !strings.HasSuffix(text, tc.want+"\n") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// Manifests are of lost ownerless pods, the last of each name; nothing from the cluster gets out of a comment.
func TestManifests(t *testing.T) {
	records := sample()
	records[1].Spec.Cause = "evil\nkind: Secret"
	got := write(t, NewReport(records, watchedAll, noon.Add(-24*time.Hour), noon, true), "yaml")
	const want = `# 3 pods lost and 1 at risk, 1 withdrawn in the last 24h.
# Recorded without a gap for all of that time.
---
# shop/web, lost 2026-12-01T11:00:00Z with node n1 (evil?kind: Secret, NoController)
apiVersion: v1
kind: Pod
metadata:
  name: web
  uid-of-test: u2
# no manifest: shop/job, lost 2026-12-01T09:00:00Z with node n1 (spot-interruption, JobWillNotRetry); it belongs to Job/etl
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestJSON(t *testing.T) {
	var answer struct {
		Watched struct{ Gaps []Period }
		Losses  []v1alpha1.PodLoss
	}
	text := write(t, NewReport(sample(), Watched{Unknown: "x"}, noon.Add(-time.Hour), noon, false), "json")
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Losses) != 2 || answer.Losses[1].Spec.Pod.UID != "u2" || len(answer.Watched.Gaps) != 1 {
		t.Errorf("answer %s", text)
	}
	if empty := write(t, NewReport(nil, watchedAll, time.Time{}, noon, false), "json"); !strings.Contains(empty, `"losses": []`) {
		t.Errorf("no losses: %s", empty)
	}
}
