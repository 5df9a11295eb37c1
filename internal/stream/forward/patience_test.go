package forward

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// An API server that swallows packets is told by its address, with what was asked of it and the way out, and not as a
// context that was canceled.
func TestSilentCluster(t *testing.T) {
	ctx, giveUp := context.WithCancelCause(t.Context())
	d, err := New(&rest.Config{Host: "https://192.0.2.1:6443", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		giveUp(stream.ErrNoAnswer) // as the client does while this hangs
		<-ctx.Done()
		return nil, ctx.Err()
	}}, "ns", "roll", stream.Port)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Dial(ctx)
	var e *stream.ConnectError
	const want = "the cluster at https://192.0.2.1:6443 does not answer: cannot get leases ns/roll: no answer for 15s"
	if !errors.As(err, &e) || err.Error() != want || !strings.Contains(e.Hint(), "--context") || e.Lasting {
		t.Errorf("it says %v, want %q", err, want)
	}
}
