package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	quietNodes = 200
	// fullEnv asks for the long watch of a quiet cluster.
	fullEnv    = "ROLLCALL_FULL"
	shortQuiet = time.Minute
	fullQuiet  = 5 * time.Minute
	// renewEvery is the kubelet's own period.
	renewEvery = 10 * time.Second
)

// A healthy cluster in which nothing happens costs no write but the Lease's: by the API server's audit log for the
// controller's user agent, and by its apiserver_request_total for patches of pods/status.
func TestQuietClusterIsNotWrittenTo(t *testing.T) {
	watch := shortQuiet
	if os.Getenv(fullEnv) != "" {
		watch = fullQuiet
	}
	l := newLab(t)
	nodes := l.quietCluster()
	p := startProcess(t, l.flags()...)
	eventually(t, "the controller works", func(context.Context) (bool, error) { return len(p.lines("working")) > 0, nil })

	before, metricsBefore := l.allWrites(), l.countedWrites()
	start := time.Now()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for time.Since(start) < watch {
		l.renew(nodes)
		<-tick.C
	}
	after := l.allWrites()
	if renewals := after["update leases"] - before["update leases"]; renewals == 0 {
		t.Error("the Lease was not renewed: did the controller work at all?")
	}
	delete(before, "update leases")
	delete(after, "update leases")
	if !maps.Equal(before, after) {
		t.Errorf("write requests in %v: before %v, after %v", watch, before, after)
	}
	if got := l.countedWrites() - metricsBefore; got != 0 {
		t.Errorf("apiserver_request_total counts %d patches of pods/status", got)
	}
	if status := p.stop(t); status != exitOK {
		t.Errorf("exit status %d", status)
	}
}

func (l *lab) allWrites() map[string]int {
	l.Helper()
	writes, err := l.cluster.Writes("rollcall-controller/")
	l.must(err)
	return writes
}

// quietCluster makes Nodes that are Ready, each with a Lease and two bare pods.
func (l *lab) quietCluster() (nodes []string) {
	l.Helper()
	for i := range quietNodes {
		nodes = append(nodes, fmt.Sprintf("%s-%03d", l.namespace, i))
	}
	l.each(nodes, func(ctx context.Context, node string) error {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		if _, err := l.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		const ready = `{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}`
		if _, err := l.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(ready), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &node}}
		if _, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return err
		}
		for _, name := range []string{node + "-a", node + "-b"} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}}
			if _, err := l.client.CoreV1().Pods(l.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	l.Cleanup(func() {
		zero, ctx := int64(0), context.Background()
		_ = l.client.CoreV1().Pods(l.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
		for _, node := range nodes {
			_ = l.client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})
		}
	})
	return nodes
}

// renew does what kubelets do every ten seconds.
func (l *lab) renew(nodes []string) {
	l.Helper()
	patch := []byte(`{"spec":{"renewTime":"` + time.Now().UTC().Format(metav1.RFC3339Micro) + `","leaseDurationSeconds":40}}`)
	l.each(nodes, func(ctx context.Context, node string) error {
		_, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// each does something for every node, several at a time.
func (l *lab) each(nodes []string, do func(context.Context, string) error) {
	l.Helper()
	work := make(chan string)
	errs := make(chan error, len(nodes))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for node := range work {
				errs <- do(l.Context(), node)
			}
		})
	}
	for _, node := range nodes {
		work <- node
	}
	close(work)
	group.Wait()
	close(errs)
	for err := range errs {
		l.must(err)
	}
}

// countedWrites sums apiserver_request_total over patches of pods/status. The metric has no user agent, and others make
// such requests only for pods that run or whose node fails, which is not so here.
func (l *lab) countedWrites() (sum int) {
	l.Helper()
	text, err := l.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(l.Context())
	l.must(err)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "apiserver_request_total{"), "} ")
		if !ok || !strings.HasPrefix(lines.Text(), "apiserver_request_total{") {
			continue
		}
		if strings.Contains(labels, `resource="pods"`) && strings.Contains(labels, `subresource="status"`) && strings.Contains(labels, `verb="`+http.MethodPatch+`"`) {
			n, err := strconv.ParseFloat(value, 64)
			l.must(err)
			sum += int(n)
		}
	}
	l.must(lines.Err())
	return sum
}
