package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// A kubelet cannot be told that its node's address is 127.0.0.1, where it listens: it refuses a loopback address
// (pkg/kubelet validateNodeIP) and reports the machine's own. So the API server is told to leave through a proxy
// (sig-api-machinery's egress selector, HTTP CONNECT on a unix socket), and the proxy takes every address for loopback.

// egressConfig sends what the API server sends to nodes, pods and services through the socket.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`

// serveEgress writes the API server's configuration into dir and serves the proxy until the result is closed.
func serveEgress(dir string) (net.Listener, error) {
	socket := filepath.Join(dir, "egress.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening for the API server's way out: %w", err)
	}
	if err := os.WriteFile(egressFile(dir), fmt.Appendf(nil, egressConfig, socket), 0o600); err != nil {
		_ = listener.Close()
		return nil, err
	}
	go func() { _ = http.Serve(listener, http.HandlerFunc(connectLoopback)) }()
	return listener, nil
}

func egressFile(dir string) string { return filepath.Join(dir, "egress.yaml") }

// connectLoopback joins the connection to the port that was asked for, on 127.0.0.1.
func connectLoopback(w http.ResponseWriter, r *http.Request) {
	_, port, err := net.SplitHostPort(r.RequestURI) // Host is the proxy's own
	if err != nil || r.Method != http.MethodConnect {
		http.Error(w, "CONNECT host:port is all there is", http.StatusBadRequest)
		return
	}
	conn, err := new(net.Dialer).DialContext(r.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = conn.Close()
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := client.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		_, _ = conn.Close(), client.Close()
		return
	}
	splice(client, conn)
}
