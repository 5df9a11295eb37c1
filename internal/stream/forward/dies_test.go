package forward

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// The end of a stream is read when it comes, not when its silence is noticed.
func TestHolderDies(t *testing.T) {
	l := newLab(t, "dies")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	l.must(err)
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
		accepted <- conn
	}()
	t.Cleanup(func() { _ = listener.Close() })
	l.pod("first", listener.Addr().String())
	l.held("first_0c6d")
	connection, err := l.dialer(l.cluster.Config()).Dial(t.Context())
	l.must(err)
	defer connection.Body.Close()
	lines := bufio.NewScanner(connection.Body)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	holder := <-accepted
	l.must(holder.Close())
	ended := make(chan bool, 1)
	go func() { ended <- !lines.Scan() }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the end of the stream is not seen")
	}
}
