package main

import (
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
)

// A door is an address that leads to a server until it is shut.
type door struct {
	address, target string
	mu              sync.Mutex
	listener        net.Listener
	connections     []net.Conn
}

func newDoor(t *testing.T, target string) *door {
	t.Helper()
	d := &door{address: "127.0.0.1:0", target: target}
	d.open(t)
	t.Cleanup(d.shut)
	return d
}

func (d *door) open(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	d.address, d.listener = listener.Addr().String(), listener
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", d.target)
			if err != nil {
				_ = in.Close()
				continue
			}
			d.mu.Lock()
			d.connections = append(d.connections, in, out)
			d.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				}()
			}
		}
	}()
}

// shut refuses and cuts connections.
func (d *door) shut() {
	_ = d.listener.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.connections {
		_ = c.Close()
	}
	d.connections = nil
}

func pemOf(server *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}
