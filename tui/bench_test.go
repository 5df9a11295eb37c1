//go:build linux

package tui

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

const (
	// asStorm makes the test binary a server with a storm going on: the UI is measured without it.
	asStorm = "ROLLCALL_TEST_AS_STORM"
	// asNothing makes it a program that draws nothing.
	asNothing = "ROLLCALL_TEST_AS_NOTHING"
	// stormRate is how many rows change in a second.
	stormRate = 2000
	// perView is how long each view is watched.
	perView = 20 * time.Second
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asStorm) != "":
		storm()
		return
	case os.Getenv(asNothing) != "":
		fmt.Println("TERM is", os.Getenv("TERM"))
		return
	}
	os.Exit(m.Run())
}

// storm serves a cluster of 5,000 nodes, 100 of them going with 20,000 pods, of which 2,000 rows change in a second, until
// its parent ends.
func storm() {
	s := large()
	hub := stream.NewHub(s.Server, time.Now)
	hub.Put(stream.Content{Queue: &s.Queue, Keys: s.Keys, Going: s.Going, Coming: s.Coming, Standing: s.Standing})
	var pods []*stream.Pod
	for _, n := range s.Going {
		pods = append(pods, s.Pods[n.Name]...)
	}
	hub.Put(stream.Content{Pods: pods})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, &stream.Handler{Hub: hub}) }()
	go func() { _, _ = bufio.NewReader(os.Stdin).ReadByte(); os.Exit(0) }()
	const step = 10 * time.Millisecond
	var n int
	for range time.Tick(step) {
		for range stormRate * int(step) / int(time.Second) {
			n++
			change(hub, s, pods, n)
		}
	}
}

// change changes one row: of ten, five pods, three keys, one going node, and a decision.
func change(hub *stream.Hub, s *stream.State, pods []*stream.Pod, n int) {
	switch n % 10 {
	case 0, 1, 2, 3, 4:
		p := *pods[n*7919%len(pods)]
		p.Message = "as of " + strconv.Itoa(n)
		hub.Put(stream.Content{Pods: []*stream.Pod{&p}})
	case 5, 6, 7:
		k := *s.Keys[n*104729%len(s.Keys)]
		k.State = []stream.KeyState{stream.Queued, stream.Running, stream.Idle}[n%3]
		k.Since, k.Started = time.Now(), int64(n)
		hub.Put(stream.Content{Keys: []*stream.Key{&k}})
	case 8:
		g := *s.Going[n*31%len(s.Going)]
		g.Pods = n % 200
		hub.Put(stream.Content{Going: []*stream.GoingNode{&g}})
	case 9:
		hub.Decide(&stream.Decision{Time: time.Now(), What: "mark", Object: "shop/pod-" + strconv.Itoa(n), Node: s.Going[n%100].Name})
	}
}

// BenchmarkUI measures the whole program in a storm, on a terminal: the client, the model and the renderer. The server is
// another process.
func BenchmarkUI(b *testing.B) {
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), asStorm+"=1")
	lifeline, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = lifeline.Close()
		_ = server.Wait()
	}()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	client := stream.NewClient(stream.Address(strings.TrimSpace(address)), stream.ClientOptions{})
	ran := make(chan struct{})
	go func() { defer close(ran); _ = client.Run(ctx) }()
	s := newTerminal(b, 200, 50)
	wait := runOn(ctx, s, client.Frames())
	s.await(b, "1 of 100")
	for b.Loop() {
		var latencies []time.Duration
		for _, v := range []struct{ name, key, shown string }{
			{"pods", "\r", "by verdict"}, {"queue", "3", "3 Queue 4096]"}, {"going", "1\x1b", "by deadline"},
		} {
			s.press(b, v.key)
			s.await(b, v.shown)
			before, began := cpu(b), time.Now()
			latencies = append(latencies, s.watch(b, perView)...)
			b.ReportMetric(100*float64(cpu(b)-before)/float64(time.Since(began)), "%cpu-"+v.name)
		}
		slices.Sort(latencies)
		b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds())/1000, "ms-key-p50")
		b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds())/1000, "ms-key-p99")
		b.ReportMetric(rss(b), "MiB-rss")
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		b.ReportMetric(float64(memory.HeapInuse)/(1<<20), "MiB-heap")
		b.ReportMetric(0, "ns/op")
	}
	s.press(b, "q")
	if err := wait(); err != nil {
		b.Error(err)
	}
	cancel()
	<-ran
}

// watch types into the filter, five keys a second, and says how long each took to be seen. Every key filters all rows.
func (s *screenTerminal) watch(b *testing.B, d time.Duration) (latencies []time.Duration) {
	end := time.Now().Add(d)
	pause := time.NewTicker(200 * time.Millisecond)
	defer pause.Stop()
	// A filter shows in the last line what was typed, and nothing else does.
	s.press(b, "/")
	s.await(b, "/_")
	typed := ""
	for time.Now().Before(end) {
		<-pause.C
		key := "-"
		typed += key
		if len(typed) == 4 {
			key, typed = "\x15", "" // the line is cleared
		}
		began := time.Now()
		s.press(b, key)
		s.await(b, "/"+typed+"_")
		latencies = append(latencies, time.Since(began))
	}
	s.press(b, "\x15\r") // the filter is cleared, and typing ends
	s.await(b, "  by ")
	return latencies
}

// cpu is the time that this process has had.
func cpu(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// rss is this process's memory in MiB.
func rss(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(kib)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(n) / 1024
		}
	}
	b.Fatal("the kernel does not say how much memory this process has")
	return 0
}
