package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/internal/stream/forward"
)

// A pod on the host's network does not serve, nor one that cannot tell; a process that is no pod does.
func TestExposed(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		says string
	}{
		"no pod":                        {nil, ""},
		"a pod of its own network":      {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_IP": "10.1.0.7", "HOST_IP": "192.168.0.2"}, ""},
		"a pod on the host's":           {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_IP": "192.168.0.2", "HOST_IP": "192.168.0.2"}, "on the host's network"},
		"the same, of version 6":        {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_IP": "fd00::2", "HOST_IP": "fd00:0::2"}, "on the host's network"},
		"a pod that was not told":       {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "set POD_IP and HOST_IP"},
		"a pod that was told half":      {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_IP": "10.1.0.7"}, "set POD_IP and HOST_IP"},
		"a pod that was told something": {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_IP": "none", "HOST_IP": "none"}, "set POD_IP and HOST_IP"},
	} {
		err := exposed(func(key string) string { return tc.env[key] })
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}

// The stream is on loopback, or nowhere.
func TestStreamAddress(t *testing.T) {
	for address, fine := range map[string]bool{
		"": true, "127.0.0.1:9790": true, "127.8.8.8:0": true, "[::1]:9790": true, "localhost:9790": true,
		":9790": false, "0.0.0.0:9790": false, "[::]:9790": false, "10.0.0.7:9790": false, "rollcall.example:9790": false, "9790": false, "localhost": false,
	} {
		if err := (&streamOptions{address}).complete(); (err == nil) != fine {
			t.Errorf("--stream-address=%q: %v", address, err)
		}
	}
}

// streamedBy makes a pod that stands for the process and forwards to its stream.
func (l *lab) streamedBy(p *process, pod string) {
	l.Helper()
	var address string
	eventually(l.T, "the stream is served", func(context.Context) (bool, error) {
		for _, line := range p.lines("serving the stream") {
			address = fmt.Sprint(line["address"])
		}
		return address != "", nil
	})
	_, port, err := net.SplitHostPort(address)
	l.must(err)
	pods := l.client.CoreV1().Pods(l.namespace)
	_, err = pods.Create(l.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Annotations: map[string]string{"cluster.rollcall.dev/forward": fmt.Sprintf("%d:%s", stream.Port, port)}},
		Spec:       corev1.PodSpec{NodeName: l.namespace, Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}, metav1.CreateOptions{})
	l.must(err)
	eventually(l.T, "pod "+pod+" runs", func(ctx context.Context) (bool, error) {
		object, err := pods.Get(ctx, pod, metav1.GetOptions{})
		return err == nil && object.Status.Phase == corev1.PodRunning, nil
	})
}

// A person's client, through the API server and the kubelet, has what the leader works out; when the leader is killed it
// has the next one's snapshot soon after the Lease changed hands. A replica that waits names the leader.
func TestStreamFollowsTheLeader(t *testing.T) {
	l := newLab(t)
	_, err := l.cluster.AddNode(t.Context(), livecluster.Node{Name: l.namespace})
	l.must(err)
	flags := l.flags("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms", "--stream-address=127.0.0.1:0")
	t.Setenv("POD_NAME", "first")
	first := startProcess(t, flags...)
	eventually(t, "the first leads", func(context.Context) (bool, error) { return len(first.lines("leading")) > 0, nil })
	t.Setenv("POD_NAME", "second")
	second := startProcess(t, flags...)
	l.streamedBy(first, "first")
	l.streamedBy(second, "second")
	node := l.namespace + "-a"
	l.nodeWithPod(node)
	l.taint(node, true)

	config := l.cluster.Config()
	dialer, err := forward.New(config, l.namespace, "rollcall-controller", stream.Port)
	l.must(err)
	client := stream.NewClient(dialer, stream.ClientOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, enough func(stream.Frame) bool) stream.Frame {
		t.Helper()
		timeout := time.After(patience)
		var frame stream.Frame
		for {
			select {
			case frame = <-client.Frames():
				if enough(frame) {
					return frame
				}
			case <-timeout:
				t.Fatalf("%s: not seen; the last frame is %+v", what, frame)
			}
		}
	}
	complete := func(f stream.Frame) bool {
		return f.Phase == stream.Live && f.State != nil && len(f.State.Going) == 1 && len(f.State.Pods[node]) == 1 && f.State.Pods[node][0].Marked && f.State.Queue.Workers > 0
	}
	frame := until("what the first knows", func(f stream.Frame) bool { return complete(f) && len(f.State.Decisions) > 0 })
	l.knows(frame, node)
	l.standbyNames(second, "first_")

	l.must(first.Process.Kill())
	var changed time.Time
	eventually(t, "the second leads", func(ctx context.Context) (bool, error) {
		lease, err := l.client.CoordinationV1().Leases(l.namespace).Get(ctx, "rollcall-controller", metav1.GetOptions{})
		changed = time.Now()
		return err == nil && lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, "second_"), err
	})
	frame = until("the second's snapshot", func(f stream.Frame) bool {
		return f.State != nil && f.Phase == stream.Live && f.Peer == l.namespace+"/second"
	})
	took := frame.Received.Sub(changed)
	t.Logf("a snapshot of the new leader %v after the Lease changed hands", took)
	if took > 5*time.Second {
		t.Errorf("a snapshot of the new leader only %v after the Lease changed hands", took)
	}
	if frame.State.Server.Boot == "" || !strings.HasPrefix(frame.State.Server.Identity, "second_") || frame.Reconnects == 0 {
		t.Errorf("the new leader: %+v, %d reconnects", frame.State.Server, frame.Reconnects)
	}
	until("what the second knows", complete)
	l.taint(node, false)
	until("the node stays", func(f stream.Frame) bool { return len(f.State.Going) == 0 && len(f.State.Pods) == 0 })
}

// knows checks what the first leader has worked out of the tainted node and its pod.
func (l *lab) knows(frame stream.Frame, node string) {
	l.Helper()
	going, pod, decision := frame.State.Going[0], frame.State.Pods[node][0], frame.State.Decisions[0]
	if frame.Peer != l.namespace+"/first" || !strings.HasPrefix(frame.State.Server.Identity, "first_") {
		l.Errorf("connected to %s, %s", frame.Peer, frame.State.Server.Identity)
	}
	if going.Name != node || going.State != "Committed" || going.Cause != "spot-interruption" || going.Pods != 1 || going.Marked != 1 || going.Verdicts["Lost"] != 1 || going.Deadline.IsZero() {
		l.Errorf("the node: %+v", going)
	}
	if pod.Name != node || pod.Verdict != "Lost" || pod.Reason != "NoController" || pod.Message == "" {
		l.Errorf("the pod: %+v", pod)
	}
	if decision.What != "mark" || decision.Object != l.namespace+"/"+node || decision.Node != node || decision.Sequence != 1 {
		l.Errorf("the decision: %+v", decision)
	}
	if len(frame.State.Keys) == 0 || frame.State.Queue.Done == 0 {
		l.Errorf("the queue: %+v, %d keys", frame.State.Queue, len(frame.State.Keys))
	}
}

// standbyNames checks that a replica that waits tells who leads.
func (l *lab) standbyNames(p *process, holder string) {
	l.Helper()
	address := fmt.Sprint(p.lines("serving the stream")[0]["address"])
	_, err := stream.Address(address).Dial(l.Context())
	if err == nil || !strings.Contains(err.Error(), "does not lead: "+holder) {
		l.Errorf("a replica that waits says %v", err)
	}
	response, err := http.Get("http://" + address + stream.SnapshotPath)
	l.must(err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable {
		l.Errorf("a replica that waits answers %s", response.Status)
	}
}
