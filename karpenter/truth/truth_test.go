package truth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/drain"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/karpenter/check"
)

// fullEnv, when not empty, asks for the long tests at their full counts.
const fullEnv = "ROLLCALL_FULL"

// exitLost is check's status where a pod is lost or stranded (DESIGN.md section 9).
const exitLost = 3

// Every Certain verdict of check is what happens, in both rounds.
func TestVerdictsHold(t *testing.T) {
	binary, err := livecluster.Executable(t.Context(), t.TempDir(), "./cmd/kubectl-rollcall")
	if err != nil {
		t.Fatal(err)
	}
	repetitions := 1
	if os.Getenv(fullEnv) != "" {
		repetitions = 3
	}
	for n := range repetitions {
		t.Run(fmt.Sprintf("repetition %d", n+1), func(t *testing.T) { holdVerdicts(t, binary) })
	}
}

func holdVerdicts(t *testing.T, binary string) {
	cluster, err := livecluster.Start(t.Context(), livecluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	var drained, died record
	t.Run("rounds", func(t *testing.T) {
		serveKinds(t, cluster)
		t.Run("drained", func(t *testing.T) {
			t.Parallel()
			drained = follow(newSite(t, cluster, "drained"), binary, (*site).drain)
		})
		t.Run("died", func(t *testing.T) {
			t.Parallel()
			died = follow(newSite(t, cluster, "died"), binary, (*site).die)
		})
	})
	if t.Failed() && (drained == nil || died == nil) {
		return
	}
	report := render(drained, died)
	t.Log("\n" + report)
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), "truth.txt"), []byte(report), 0o644); err != nil {
		t.Error(err)
	}
	drained.judge(t, "drained")
	died.judge(t, "died")
}

// follow sets the scenarios up, takes the verdicts, ends the node and returns what became of every pod.
func follow(s *site, binary string, end func(*site, record)) record {
	began := time.Now()
	step := func(what string) {
		s.Logf("%s: %s after %s", s.round, what, time.Since(began).Round(time.Second))
	}
	s.setUp()
	step("set up")
	rows := s.take(binary)
	step(fmt.Sprintf("verdicts on %d pods", len(rows)))
	end(s, rows)
	step("node ended")
	s.settle(rows)
	step("settled")
	return rows
}

// take asks check about the node and returns a row for every pod of its namespace.
func (s *site) take(binary string) record {
	s.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(s.Context(), binary, "check", s.going, "-o", "json", "-n", s.namespace,
		"--kubeconfig", s.cluster.Kubeconfig(), "--owner-kinds", strings.Join(ownerKinds, ","))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != exitLost {
		s.Fatalf("check: %v, want exit status %d\n%s", err, exitLost, stderr.String())
	}
	var report check.Report
	s.must(json.Unmarshal(stdout.Bytes(), &report))
	if len(report.Nodes) != 1 {
		s.Fatalf("check reports %d nodes, want 1", len(report.Nodes))
	}
	return s.rows(&report.Nodes[0])
}

// drain is what 'kubectl drain --force --ignore-daemonsets --delete-emptydir-data' does, then the machine's end. The drain
// is given up once it has done all that it can: budgets and pods that need an hour to stop would keep it for ever.
func (s *site) drain(rows record) {
	node, err := s.client.CoreV1().Nodes().Get(s.Context(), s.going, metav1.GetOptions{})
	s.must(err)
	ctx, giveUp := context.WithTimeout(s.Context(), patience)
	defer giveUp()
	helper := &drain.Helper{
		Ctx: ctx, Client: s.client, Force: true, GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		EvictErrorRetryDelay: time.Second, Timeout: patience, Out: io.Discard, ErrOut: io.Discard,
	}
	s.must(drain.RunCordonOrUncordon(helper, node, true))
	ended := make(chan error, 1)
	go func() { ended <- drain.RunNodeDrain(helper, s.going) }()
	s.eventually("the drain to do what it can", func() bool { return s.drainedAll(rows) })
	giveUp()
	s.Logf("the drain was given up: %d errors", strings.Count(fmt.Sprint(<-ended), "error when"))
	for i := range rows {
		rows[i].kept = rows[i].onGoing && s.ledger.exists(rows[i].pod.UID) && s.ledger.pod(rows[i].pod.UID).DeletionTimestamp == nil
	}
	s.die(rows)
}

// drainedAll says whether every pod that the drain can end has gone, and the others are Terminating.
func (s *site) drainedAll(rows record) bool {
	for _, r := range rows {
		if !r.onGoing || r.want.kept || !s.ledger.exists(r.pod.UID) {
			continue
		}
		if s.ledger.pod(r.pod.UID).DeletionTimestamp == nil || !lingers(r.pod) {
			return false
		}
	}
	return true
}

// lingers says whether a pod stays Terminating for longer than the test lasts while its kubelet lives.
func lingers(pod *corev1.Pod) bool {
	return pod.Annotations[stopAfter] != "" || held(pod)
}

// die is a power cut that the cloud has noticed: the kubelet gets SIGKILL and the Node is deleted.
func (s *site) die(record) {
	s.must(s.cluster.KillNode(s.Context(), s.going))
	s.must(s.client.CoreV1().Nodes().Delete(s.Context(), s.going, metav1.DeleteOptions{}))
}

// settle waits until every pod has come to the outcome that its scenario expects, and nothing has changed since for as long
// as quiet. What has not come by then is recorded as it is.
func (s *site) settle(rows record) {
	give := time.Now().Add(settlePatience)
	changed := time.Now()
	for {
		moved, asExpected := s.observe(rows)
		if moved {
			changed = time.Now()
		}
		if asExpected && time.Since(changed) > quiet || time.Now().After(give) {
			return
		}
		select {
		case <-s.Context().Done():
			s.Fatal(s.Context().Err())
		case <-time.After(pollEvery):
		}
	}
}
