package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/karpenter/losses"
)

// installPodLoss makes the API server serve PodLoss until the test ends.
func (l *lab) installPodLoss() {
	l.Helper()
	root, err := livecluster.Root()
	l.must(err)
	text, err := os.ReadFile(filepath.Join(root, "deploy/crds/podlosses.yaml"))
	l.must(err)
	text, err = yaml.YAMLToJSON(text)
	l.must(err)
	crd := &unstructured.Unstructured{}
	l.must(crd.UnmarshalJSON(text))
	crds := dynamic.NewForConfigOrDie(l.cluster.Config()).Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = crds.Create(l.Context(), crd, metav1.CreateOptions{})
	l.must(err)
	l.Cleanup(func() { _ = crds.Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{}) })
	client := dynamic.NewForConfigOrDie(l.cluster.Config())
	eventually(l.T, "PodLoss is served", func(ctx context.Context) (bool, error) {
		_, err := losses.List(ctx, client, l.namespace)
		return err == nil, nil
	})
}

func (l *lab) watched() losses.Watched {
	l.Helper()
	return losses.ReadWatched(l.Context(), l.client, l.namespace, "rollcall-controller", time.Now())
}

// The Lease says when losses were recorded: while a controller leads, until it ended, and with the gap once another does.
func TestLeaseSaysWhenLossesAreRecorded(t *testing.T) {
	l := newLab(t)
	l.installPodLoss()
	if w := l.watched(); w.Unknown == "" {
		t.Errorf("before the first: %+v", w)
	}
	flags := l.flags("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms")
	first := startProcess(t, flags...)
	eventually(t, "losses are recorded", func(context.Context) (bool, error) { return l.watched().Now, nil })
	if status := first.stop(t); status != exitOK {
		t.Errorf("exit status %d", status)
	}
	between := l.watched()
	if between.Now || len(between.Periods) != 1 || between.Periods[0].To.IsZero() {
		t.Errorf("after the first: %+v", between)
	}
	startProcess(t, flags...)
	eventually(t, "losses are recorded again", func(context.Context) (bool, error) { return l.watched().Now, nil })
	w := l.watched()
	if len(w.Periods) != 2 || w.Periods[0].To.Before(w.Periods[0].From) || w.Periods[1].From.Before(w.Periods[0].To) {
		t.Errorf("with the second: %+v", w)
	}
	// The first ended by itself and gave the Lease back: its last sign of life is known to the second.
	if !w.Periods[0].To.Equal(between.Periods[0].To) {
		t.Errorf("the first ended at %v, the second says %v", between.Periods[0].To, w.Periods[0].To)
	}
}

// The process serves its metrics beside the probes.
func TestMetricsAreServed(t *testing.T) {
	l := newLab(t)
	l.nodeWithPod(l.namespace)
	p := startProcess(t, l.flags("--leader-elect-retry-period=200ms")...)
	l.taint(l.namespace, true)
	l.waitMark(l.namespace, true)
	want := []string{
		"rollcall_leader 1", `rollcall_build_info{`, `rollcall_pods_at_risk{verdict="Lost"} 1`, `rollcall_nodes{disruption="Committed"} 1`,
		`rollcall_marks_written_total{verdict="Lost"} 1`, "rollcall_mark_latency_seconds_count 1", `workqueue_adds_total{name="nodes"}`,
		`rest_client_requests_total{code="200",method="PATCH"}`, "rest_client_request_duration_seconds_count{", "go_goroutines",
	}
	var text string
	missing := func() (lines []string) {
		for _, line := range want {
			if !strings.Contains(text, line) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	eventually(t, "all metrics", func(context.Context) (bool, error) {
		response, err := http.Get("http://" + p.health + "/metrics")
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		text = string(body)
		return len(missing()) == 0, err
	})
}
