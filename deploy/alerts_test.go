package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

const alertsFile = "chart/files/alerts.yaml"

// A controller is one that runs, and where it serves its metrics.
type controller struct {
	*liverollcall.Program
	address string
}

// startController starts one as an administrator, with further flags.
func (l *lab) startController(binaries *liverollcall.Binaries, name string, flags ...string) *controller {
	l.Helper()
	c := &controller{address: l.freeAddress()}
	usual := []string{"--kubeconfig", l.cluster.Kubeconfig(), "--health-address", c.address, "--stream-address=", "--leader-elect-namespace=kube-system", "--leader-elect-name=" + name}
	var err error
	c.Program, err = binaries.Start(liverollcall.Controller, name, append(usual, flags...)...)
	l.must(err)
	l.Cleanup(c.Stop)
	return c
}

func (l *lab) freeAddress() string {
	l.Helper()
	ports, err := livecluster.FreePorts(1)
	l.must(err)
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// scrape waits until the controller's metrics have all the lines, and writes them to a file.
func (l *lab) scrape(c *controller, lines ...string) string {
	l.Helper()
	return l.scrapeOnce(c, func(text string) error {
		for _, line := range lines {
			if !strings.Contains(text, line) {
				return fmt.Errorf("no %q", line)
			}
		}
		return nil
	})
}

// scrapeOnce waits until the controller's metrics are as they should be.
func (l *lab) scrapeOnce(c *controller, should func(text string) error) string {
	l.Helper()
	var text string
	l.eventually("metrics", func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/metrics", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err
		}
		text = string(body)
		err = should(text)
		return err == nil, c.Explain(err)
	})
	file := filepath.Join(l.TempDir(), "scrape")
	l.must(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// judge evaluates the alerts on scrapes, and returns what is active, by name, and how much each compares.
func judge(t *testing.T, scrapes ...string) (active map[string][]map[string]string, compared map[string]int) {
	t.Helper()
	out, err := tool(t, "alerts", append([]string{alertsFile}, scrapes...)...)
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []struct {
		Alert    string
		Active   []map[string]string
		Compared int
	}
	if err := json.Unmarshal([]byte(out), &verdicts); err != nil {
		t.Fatal(err)
	}
	active, compared = map[string][]map[string]string{}, map[string]int{}
	for _, v := range verdicts {
		compared[v.Alert] = v.Compared
		if len(v.Active) > 0 {
			active[v.Alert] = v.Active
		}
	}
	return active, compared
}

// Each alert is evaluated by Prometheus' engine on what real controllers serve: none is active while all is well; those that can
// be brought about are active when it is not, and no others; and of each there is something to compare.
func TestAlertsOnRealMetrics(t *testing.T) {
	l := newLab(t)
	binaries, err := liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller)
	l.must(err)
	l.makeNamespace("alerts", nil)
	well := l.startController(binaries, "alerts-well", "--held-warning=1s")
	quiet := l.scrape(well, "rollcall_leader 1", `rollcall_nodes{disruption="None"} 0`)

	// 1. A pod is lost, another is at risk, one stands on a spot node, and a node waits for an agent that does not come.
	l.makeNode("alerts-goes", nil)
	l.makeNode("alerts-stands", map[string]string{"karpenter.sh/capacity-type": "spot"})
	l.makeNode("alerts-new", nil, corev1.Taint{Key: "readiness.k8s.io/StaticPodsMirrored", Value: "pending", Effect: corev1.TaintEffectNoSchedule})
	for pod, node := range map[string]string{"lost": "alerts-goes", "at-risk": "alerts-goes", "stands": "alerts-stands"} {
		l.makePod("alerts", pod, node)
	}
	l.taint("alerts-goes", spot)
	l.waitMark("alerts", "lost", true)
	l.waitMark("alerts", "at-risk", true)
	now := int64(0)
	l.must(l.client.CoreV1().Pods("alerts").Delete(t.Context(), "lost", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	trouble := l.scrape(well, `rollcall_pods_lost_total{cause="spot-interruption",reason="NoController",verdict="Lost"} 1`,
		`rollcall_pods_at_risk{verdict="Lost"} 1`, `rollcall_nodes_held{reason="KubeletNotReady"} 1`,
		`rollcall_standing_pods{capacity_type="spot",namespace="alerts",verdict="Lost"} 1`)

	// 2. A controller that may do nothing.
	refused := l.startController(binaries, "alerts-refused", "--as=nobody")
	refusals := l.scrape(refused, `rest_client_requests_total{code="403"`)
	seen, err := os.ReadFile(refusals)
	l.must(err)
	more := l.scrapeOnce(refused, func(text string) error {
		if counted := line(text, `code="403",method="GET"`); counted == line(string(seen), `code="403",method="GET"`) {
			return fmt.Errorf("still %q", counted)
		}
		return nil
	})
	gone := filepath.Join(t.TempDir(), "gone")
	l.must(os.WriteFile(gone, nil, 0o600))

	for name, tc := range map[string]struct {
		scrapes []string
		want    []string
	}{
		"all is well":  {[]string{quiet, quiet, quiet}, nil},
		"trouble":      {[]string{quiet, trouble, trouble}, []string{"RollcallBarePodsOnSpot", "RollcallNodesHeld", "RollcallPodsAtRisk", "RollcallPodsLost"}},
		"no rights":    {[]string{quiet, refusals, more}, []string{"RollcallNoLeader", "RollcallRefused"}},
		"nobody there": {[]string{gone}, []string{"RollcallNoLeader"}},
	} {
		active, _ := judge(t, tc.scrapes...)
		if got := slices.Sorted(maps.Keys(active)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: active are %v, want %v", name, active, tc.want)
		}
	}
	_, compared := judge(t, quiet, trouble, trouble, refusals, more)
	for alert, n := range compared {
		if n == 0 {
			t.Errorf("%s has nothing to compare in what a controller serves", alert)
		}
	}
	l.namesAreServed(trouble)
}

// One refusal is enough for RollcallRefused, if the series is new; a POST that is refused in a namespace that ends is not meant,
// nor are another program's requests.
func TestAlertOfRefusals(t *testing.T) {
	const (
		ours   = "rollcall_build_info 1\nrest_client_requests_total{code=\"200\",method=\"GET\"} 7\n"
		patch  = "rest_client_requests_total{code=\"403\",method=\"PATCH\"} 1\n"
		more   = "rest_client_requests_total{code=\"403\",method=\"PATCH\"} 2\n"
		post   = "rest_client_requests_total{code=\"403\",method=\"POST\"} 1\n"
		others = "rest_client_requests_total{code=\"403\",method=\"PATCH\"} 1\n"
	)
	for name, tc := range map[string]struct {
		scrapes []string
		methods []string
	}{
		"none":                 {[]string{ours, ours}, nil},
		"a first one":          {[]string{ours, ours + patch}, []string{"PATCH"}},
		"one more":             {[]string{ours + patch, ours + more}, []string{"PATCH"}},
		"in an ending space":   {[]string{ours, ours + post}, nil},
		"of another program's": {[]string{"", others}, nil},
		// 20 minutes with the same number: it is over.
		"long ago": {slices.Concat([]string{ours}, slices.Repeat([]string{ours + patch}, 20)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var files []string
			for i, text := range tc.scrapes {
				files = append(files, filepath.Join(t.TempDir(), fmt.Sprint(i)))
				if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			active, _ := judge(t, files...)
			var methods []string
			for _, alert := range active["RollcallRefused"] {
				methods = append(methods, alert["method"])
			}
			if !slices.Equal(methods, tc.methods) {
				t.Errorf("active for %v, want %v", methods, tc.methods)
			}
		})
	}
}

// line is the first line that has the text.
func line(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

var metricName = regexp.MustCompile(`\b(rollcall|workqueue|rest_client)_[a-z_]+`)

// namesAreServed holds the names in the alerts and in the dashboard to what is served.
func (l *lab) namesAreServed(scrape string) {
	l.Helper()
	served, err := os.ReadFile(scrape)
	l.must(err)
	for _, file := range []string{alertsFile, "chart/files/dashboard.json"} {
		text, err := os.ReadFile(file)
		l.must(err)
		names := metricName.FindAllString(string(text), -1)
		if len(names) == 0 {
			l.Errorf("%s names no metric", file)
		}
		for _, name := range names {
			if !strings.Contains(string(served), name) {
				l.Errorf("%s names %s, which no controller serves", file, name)
			}
		}
	}
}

// makeNode creates a Node without a kubelet.
func (l *lab) makeNode(name string, labels map[string]string, taints ...corev1.Taint) {
	l.Helper()
	_, err := l.client.CoreV1().Nodes().Create(l.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints},
	}, metav1.CreateOptions{})
	l.must(err)
	l.Cleanup(func() { _ = l.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
}
