package forward

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// askEvery is how often the Lease is read while connected. A leader that dies ends the connection by itself; one that
// hangs, or is cut off from the API server alone, does not. It bounds, together with the client's pause, how late the new
// leader is found, and costs one small read.
const askEvery = 2 * time.Second

// held is a stream that ends when another holds the Lease.
type held struct {
	io.ReadCloser
	stop    context.CancelFunc
	watches sync.WaitGroup

	mu     sync.Mutex
	passed string // guarded by mu; the other holder
}

// whileHeld watches over the stream until it is closed or ctx ends.
func (d *Dialer) whileHeld(ctx context.Context, body io.ReadCloser, holder string) *held {
	ctx, stop := context.WithCancel(ctx)
	h := &held{ReadCloser: body, stop: stop}
	h.watches.Go(func() {
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// An error says nothing of who leads: the stream goes on, or ends by itself.
			lease, err := d.client.CoordinationV1().Leases(d.namespace).Get(ctx, d.lease, metav1.GetOptions{})
			if now := holderOf(lease); err == nil && now != holder && now != "" {
				h.mu.Lock()
				h.passed = now
				h.mu.Unlock()
				_ = body.Close() // the read in flight returns
				return
			}
		}
	})
	return h
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// Read tells why the stream ended where that is known.
func (h *held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passed != "" {
		return n, fmt.Errorf("the Lease went to %s", h.passed)
	}
	return n, err
}

func (h *held) Close() error {
	h.stop()
	err := h.ReadCloser.Close()
	h.watches.Wait()
	return err
}
