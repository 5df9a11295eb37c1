// Package health owns the answers to the kubelet's probes, and how a process serves HTTP beside its work.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Checks are what the probes ask. Each is nil where all is well.
type Checks struct {
	// Live answers /healthz: an error has the process restarted.
	Live func(*http.Request) error
	// Ready answers /readyz.
	Ready func(*http.Request) error
}

// Handler serves /healthz and /readyz: 200 "ok", or 503 and why not.
func Handler(checks Checks) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(checks.Live))
	mux.HandleFunc("GET /readyz", answer(checks.Ready))
	return mux
}

func answer(check func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// Serve serves what it is called on the address until the context ends. It returns once the address is taken, with the one that it really
// has (a port of 0 takes a free one); an address that cannot be had is an error.
func Serve(ctx context.Context, what, address string, handler http.Handler) (net.Addr, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w", what, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("serving "+what+" ended", "error", err)
		}
	}()
	return listener.Addr(), nil
}
