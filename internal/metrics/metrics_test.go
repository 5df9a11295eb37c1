package metrics

import (
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

// exercised has every metric of rollcall with a value.
func exercised(t *testing.T) *Metrics {
	t.Helper()
	m := New("v1", []string{"NoController"}, func(cause string) bool { return cause == "spot-interruption" })
	zero := func() int64 { return 3 }
	m.Count(Counts{RecordsDropped: zero, RecordsFailed: zero})
	m.ConditionWritten("MirrorMissing")
	m.NodeReleased()
	m.Held(func() Held {
		return Held{Nodes: map[string]int{"MirrorMissing": 1}, Pods: []HeldPod{{"n1", "late", "tunnel-n1", "MirrorMissing", "NamespaceNotFound"}}}
	})
	m.EventDropped()
	m.EventFailed()
	m.Leading(true)
	m.Marked("Lost")
	m.Cleared()
	m.Reacted(40 * time.Millisecond)
	m.Aged(-time.Millisecond)
	m.Lost("Lost", "NoController", "spot-interruption")
	m.Now(func() State {
		return State{AtRisk: map[string]int{"Lost": 2}, Nodes: map[string]int{"None": 3, "Committed": 1}}
	})
	m.Standing(map[Stand]int{{"shop", "Lost", "spot"}: 4})
	queues := m.Queues()
	queues.NewDepthMetric("nodes").Inc()
	queues.NewAddsMetric("nodes").Inc()
	queues.NewRetriesMetric("nodes").Inc()
	queues.NewLatencyMetric("nodes").Observe(1)
	queues.NewWorkDurationMetric("nodes").Observe(1)
	queues.NewUnfinishedWorkSecondsMetric("nodes").Set(1)
	queues.NewLongestRunningProcessorSecondsMetric("nodes").Set(1)
	WatchRequests()
	clientmetrics.RequestResult.Increment(t.Context(), "200", "GET", "host")
	clientmetrics.RequestRetry.IncrementRetry(t.Context(), "429", "GET", "host")
	clientmetrics.RequestLatency.Observe(t.Context(), "GET", url.URL{}, time.Millisecond)
	clientmetrics.RateLimiterLatency.Observe(t.Context(), "GET", url.URL{}, time.Millisecond)
	return m
}

func exposition(t *testing.T, m *Metrics) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What promtool check metrics says of the exposition.
func TestLint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(exposition(t, exercised(t)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// described are the names and labels of all metrics that are registered, whether they have a value or not, the Go
// client library's own aside.
func described(m *Metrics) map[string][]string {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m.registry.Describe(descs)
	}()
	form := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	names := map[string][]string{}
	for desc := range descs {
		found := form.FindStringSubmatch(desc.String())
		if found == nil {
			names["unreadable: "+desc.String()] = nil
			continue
		}
		if strings.HasPrefix(found[1], "go_") || strings.HasPrefix(found[1], "process_") {
			continue
		}
		names[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' })
	}
	return names
}

// docs/metrics.md has every metric with its labels, and no other.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		labels := strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		documented[strings.Trim(cells[1], " `")] = labels
	}
	registered := described(exercised(t))
	if len(registered) < 20 {
		t.Fatalf("only %d metrics are registered: is their description read right?", len(registered))
	}
	for name, labels := range registered {
		row, known := documented[name]
		if !known {
			t.Errorf("%s is not in docs/metrics.md", name)
			continue
		}
		slices.Sort(labels)
		slices.Sort(row)
		if !slices.Equal(labels, row) {
			t.Errorf("%s has the labels %v, docs/metrics.md says %v", name, labels, row)
		}
	}
	for name := range documented {
		if _, known := registered[name]; !known {
			t.Errorf("docs/metrics.md has %s, which does not exist", name)
		}
	}
}

// Values from outside cannot make series without end.
func TestLabelsAreBounded(t *testing.T) {
	m := New("v1", []string{"NoController"}, func(cause string) bool { return cause == "spot-interruption" })
	for i := range 1000 {
		forged := fmt.Sprint("forged-", i)
		m.Lost(forged, forged, forged)
		m.Marked(forged)
	}
	text := exposition(t, m)
	if strings.Contains(text, "forged") || !strings.Contains(text, `rollcall_pods_lost_total{cause="other",reason="other",verdict="other"} 1000`) {
		t.Errorf("exposition:\n%s", text)
	}
}

func TestStandingIsBounded(t *testing.T) {
	counts := map[Stand]int{
		{"big", "Returns", "spot"}:      90,
		{"hurt", "Lost", "spot"}:        3,
		{"hurt", "Returns", "spot"}:     1,
		{"sore", "Unsure", "on-demand"}: 2,
		{"calm", "Returns", "SPOT"}:     7,
		{"calm", "Static", "spot"}:      5,
	}
	want := map[Stand]int{
		{"hurt", "Lost", "spot"}:                3,
		{"hurt", "Returns", "spot"}:             1,
		{"sore", "Unsure", "on-demand"}:         2,
		{OtherNamespaces, "Returns", "spot"}:    90,
		{OtherNamespaces, "Returns", "unknown"}: 7,
	}
	if got := boundStanding(counts, 2); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A replica that does not lead has nothing to say of the cluster.
func TestOnlyTheLeaderDescribesTheCluster(t *testing.T) {
	m := exercised(t)
	if text := exposition(t, m); !strings.Contains(text, `rollcall_pods_at_risk{verdict="Lost"} 2`) ||
		!strings.Contains(text, `rollcall_nodes{disruption="Pending"} 0`) || !strings.Contains(text, "rollcall_standing_pods{") {
		t.Errorf("exposition:\n%s", text)
	}
	m.Leading(false)
	m.Now(nil)
	m.Standing(nil)
	for _, name := range []string{"rollcall_pods_at_risk{", "rollcall_nodes{", "rollcall_standing_pods{"} {
		if strings.Contains(exposition(t, m), name) {
			t.Errorf("%s is there", name)
		}
	}
}
