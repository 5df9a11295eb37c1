package leader_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/leader"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// patience bounds every wait; a test that holds does not wait for it.
const patience = time.Minute

// A replica is one process's part of an election on the real API server.
type replica struct {
	elector *leader.Elector
	deaf    *atomic.Bool // its requests for the Lease hang

	leads chan context.Context // what Work was called with
	ends  chan error           // what Run returned
	stop  context.CancelFunc
}

func newReplica(t *testing.T, namespace, identity string) *replica {
	t.Helper()
	config := livecluster.Shared(t).Config()
	r := &replica{deaf: &atomic.Bool{}, leads: make(chan context.Context, 1), ends: make(chan error, 1)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return hanging{next, r.deaf} })
	r.elector = leader.New(kubernetes.NewForConfigOrDie(config), leader.Config{
		Elect: true, Namespace: namespace, Name: "test", Identity: identity,
		Duration: 15 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond,
	})
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	running := make(chan struct{})
	go func() {
		defer close(running)
		r.ends <- r.elector.Run(ctx, func(lead context.Context, stop <-chan struct{}) error {
			r.leads <- lead
			select {
			case <-lead.Done():
			case <-stop:
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		r.deaf.Store(false)
		<-running
	})
	return r
}

// hanging is a server that takes requests for Leases and never answers, while deaf is set.
type hanging struct {
	next http.RoundTripper
	deaf *atomic.Bool
}

func (h hanging) RoundTrip(request *http.Request) (*http.Response, error) {
	if h.deaf.Load() && strings.Contains(request.URL.Path, "/leases/") {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return h.next.RoundTrip(request)
}

func within[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

func namespace(t *testing.T) (*kubernetes.Clientset, string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(livecluster.Shared(t).Config())
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "leader-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
	return client, made.Name
}

// The API server takes the renewals and never answers. The right to write must end before another replica may take the
// Lease, although the election itself still hangs.
func TestHangingServerEndsTheRightToWriteBeforeTheLeaseDoes(t *testing.T) {
	client, ns := namespace(t)
	r := newReplica(t, ns, "first")
	lead := within(t, "leading", r.leads)

	r.deaf.Store(true)
	within(t, "the end of the right to write", lead.Done())
	ended := time.Now()
	lease, err := client.CoordinationV1().Leases(ns).Get(t.Context(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := *lease.Spec.HolderIdentity; holder != "first" {
		t.Errorf("the Lease is %q's, want it untouched", holder)
	}
	expires := lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
	if !ended.Before(expires) {
		t.Errorf("the right to write ended %v after the Lease", ended.Sub(expires))
	}
	if err := within(t, "the end of the election", r.ends); !errors.Is(err, leader.ErrLost) {
		t.Errorf("Run returned %v, want ErrLost", err)
	}
}

// A holder that is told to stop finishes its work, and then hands the Lease over at once.
func TestStopHandsTheLeaseOver(t *testing.T) {
	client, ns := namespace(t)
	first := newReplica(t, ns, "first")
	lead := within(t, "leading", first.leads)
	second := newReplica(t, ns, "second")

	first.stop()
	if err := within(t, "the end of the first", first.ends); err != nil {
		t.Errorf("Run returned %v, want nothing after a stop", err)
	}
	if lead.Err() == nil {
		t.Error("the right to write outlived the election")
	}
	within(t, "the second's turn", second.leads)
	lease, err := client.CoordinationV1().Leases(ns).Get(t.Context(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := *lease.Spec.HolderIdentity; holder != "second" {
		t.Errorf("the Lease is %q's, want the second's", holder)
	}
	if second.elector.Previous().IsZero() {
		t.Error("the second does not know when the first last renewed")
	}
}

// A replica that only waits ends at once when it is told to.
func TestWaitingReplicaStops(t *testing.T) {
	_, ns := namespace(t)
	first := newReplica(t, ns, "first")
	within(t, "leading", first.leads)
	second := newReplica(t, ns, "second")
	second.stop()
	if err := within(t, "the end of the second", second.ends); err != nil {
		t.Errorf("Run returned %v, want nothing", err)
	}
	select {
	case <-second.leads:
		t.Error("the second led while the first held the Lease")
	default:
	}
}
