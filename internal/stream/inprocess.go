package stream

import (
	"context"
	"net"
)

// InProcess dials a hub of this process.
type InProcess struct {
	Hub *Hub
	// Peer is what to call it.
	Peer string
}

// Dial implements Dialer.
func (p InProcess) Dial(ctx context.Context) (*Connection, error) {
	r, err := p.Hub.attach()
	if err != nil {
		return nil, &ConnectError{Problem: err.Error(), Err: err}
	}
	near, far := net.Pipe()
	ctx, stop := context.WithCancel(ctx)
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer p.Hub.detach(r)
		defer far.Close()
		p.Hub.serve(ctx, pipeSink{far}, r)
	}()
	return &Connection{Body: &local{near, stop, served}, Peer: p.Peer}, nil
}

// local is the near end. Closing it waits until nothing is served.
type local struct {
	net.Conn
	stop   context.CancelFunc
	served chan struct{}
}

func (l *local) Close() error {
	l.stop()
	err := l.Conn.Close()
	<-l.served
	return err
}

type pipeSink struct{ net.Conn }

// Flush does nothing: a pipe keeps nothing back.
func (pipeSink) Flush() error { return nil }
