package health

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

func TestProbes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var ready atomic.Bool
	address, err := Serve(ctx, "health", "127.0.0.1:0", Handler(Checks{
		Live: func(*http.Request) error { return nil },
		Ready: func(*http.Request) error {
			if !ready.Load() {
				return errors.New("not yet")
			}
			return nil
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(path string, status int, body string) {
		t.Helper()
		response, err := http.Get("http://" + address.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status || string(text) != body {
			t.Errorf("%s: %d %q, %v; want %d %q", path, response.StatusCode, text, err, status, body)
		}
	}
	expect("/healthz", http.StatusOK, "ok\n")
	expect("/readyz", http.StatusServiceUnavailable, "not yet\n")
	ready.Store(true)
	expect("/readyz", http.StatusOK, "ok\n")
	expect("/metrics", http.StatusNotFound, "404 page not found\n")

	if _, err := Serve(ctx, "health", address.String(), nil); err == nil {
		t.Error("an address that is taken is no error")
	}
	cancel()
}
