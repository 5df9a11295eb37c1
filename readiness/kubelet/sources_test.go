package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/rollcall-dev/rollcall/readiness"
)

// listen runs a source and returns what it reports.
func listen(t *testing.T, source Source) <-chan Answer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answers, done := make(chan Answer, 100), make(chan struct{})
	go func() {
		defer close(done)
		source.Run(ctx, func(a Answer) { answers <- a })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return answers
}

// until returns the first answer that satisfies.
func until(t *testing.T, answers <-chan Answer, what string, satisfies func(Answer) bool) Answer {
	t.Helper()
	deadline := time.After(30 * time.Second)
	var last Answer
	for {
		select {
		case last = <-answers:
			if satisfies(last) {
				return last
			}
		case <-deadline:
			t.Fatalf("%s: the last answer is %+v", what, last)
		}
	}
}

// fakeKubelet serves the PodsAPI.
type fakeKubelet struct {
	podsv1alpha1.UnimplementedPodsServer
	ready  chan struct{} // closed when it knows its pods
	events chan *podsv1alpha1.WatchPodsEvent
	pods   chan []*corev1.Pod // cap 1: what is listed now
	lists  chan struct{}
}

func newFakeKubelet() *fakeKubelet {
	return &fakeKubelet{
		ready: make(chan struct{}), events: make(chan *podsv1alpha1.WatchPodsEvent),
		pods: make(chan []*corev1.Pod, 1), lists: make(chan struct{}, 100),
	}
}

func (k *fakeKubelet) initializing() error {
	select {
	case <-k.ready:
		return nil
	default:
		return status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
}

func (k *fakeKubelet) ListPods(context.Context, *podsv1alpha1.ListPodsRequest) (*podsv1alpha1.ListPodsResponse, error) {
	if err := k.initializing(); err != nil {
		return nil, err
	}
	k.lists <- struct{}{}
	pods := <-k.pods
	k.pods <- pods
	response := &podsv1alpha1.ListPodsResponse{}
	for _, pod := range pods {
		response.Pods = append(response.Pods, encode(pod))
	}
	return response, nil
}

func (k *fakeKubelet) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream podsv1alpha1.Pods_WatchPodsServer) error {
	if err := k.initializing(); err != nil {
		return err
	}
	if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case event := <-k.events:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

func encode(pod *corev1.Pod) []byte {
	data, err := pod.Marshal()
	if err != nil {
		panic(err)
	}
	return data
}

func podOf(source, name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name, UID: types.UID(name), Annotations: map[string]string{
			"kubernetes.io/config.source": source, "kubernetes.io/config.hash": "hash-" + name,
		}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func (k *fakeKubelet) serve(t *testing.T, socket string) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podsv1alpha1.RegisterPodsServer(server, k)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server
}

// The socket appears, initializes, answers; events of static pods make another list, those of others none; finished pods
// and API pods are not expected; when it goes away it is waited for.
func TestPodsAPI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "pods-api", "s")
	source := &PodsAPI{Socket: socket}
	answers := listen(t, source)
	until(t, answers, "no socket", func(a Answer) bool { return a.State == Absent && strings.Contains(a.Why, "no socket") })

	kubelet := newFakeKubelet()
	kubelet.pods <- []*corev1.Pod{podOf("file", "a", ""), podOf("http", "b", corev1.PodRunning), podOf("file", "c", corev1.PodFailed), podOf("api", "d", "")}
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	server := kubelet.serve(t, socket)
	until(t, answers, "initializes", func(a Answer) bool {
		return a.State == Waiting && strings.Contains(a.Why, "not read all of its sources")
	})
	close(kubelet.ready)
	got := until(t, answers, "answers", func(a Answer) bool { return a.State == Known })
	if len(got.Pods) != 2 || got.Pods[0].Hash != "hash-a" {
		t.Errorf("got %+v", got.Pods)
	}

	<-kubelet.pods
	kubelet.pods <- []*corev1.Pod{podOf("http", "b", corev1.PodRunning)}
	kubelet.events <- &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_DELETED, Pod: encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})}
	until(t, answers, "a static pod is gone", func(a Answer) bool { return a.State == Known && len(a.Pods) == 1 })

	server.Stop()
	until(t, answers, "gone", func(a Answer) bool { return a.State == Waiting })
	_ = os.Remove(socket)
	again := newFakeKubelet()
	close(again.ready)
	again.pods <- nil
	again.serve(t, socket)
	until(t, answers, "back", func(a Answer) bool { return a.State == Known && len(a.Pods) == 0 })
}

// clock is a time that stands until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// A kubelet that says that it initializes and then restarts is waited for as long as it takes: by the next source, such as
// an empty directory, the node could be released while a pod of a URL is on its way.
func TestPodsAPIRestartsWhileItInitializes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := newFakeKubelet().serve(t, socket)
	clock := &clock{at: time.Now()}
	answers := listen(t, &PodsAPI{Socket: socket, now: clock.now})
	initializes := func(a Answer) bool { return strings.Contains(a.Why, "not read all of its sources") }
	until(t, answers, "initializes", initializes)
	clock.move(patience)
	server.Stop()
	gone := until(t, answers, "stopped", func(a Answer) bool { return !initializes(a) })
	if gone.State != Waiting {
		t.Errorf("stopped: got %+v", gone)
	}
	_ = os.Remove(socket)
	until(t, answers, "without a socket", func(a Answer) bool {
		if a.State != Waiting {
			t.Errorf("got %+v", a)
		}
		return strings.Contains(a.Why, "no socket")
	})
}

// A manifest is replaced, which is a removal and an addition, and a list falls in between: the pod is not lost. What is
// added counts at once, what is really removed when a list that is taken after settle agrees, without another event.
func TestPodsAPIHoldsBackLosses(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	kubelet := newFakeKubelet()
	close(kubelet.ready)
	kubelet.pods <- []*corev1.Pod{podOf("file", "a", ""), podOf("file", "b", "")}
	kubelet.serve(t, socket)
	clock := &clock{at: time.Now()}
	answers := listen(t, &PodsAPI{Socket: socket, now: clock.now})
	until(t, answers, "first", func(a Answer) bool { return names(a.Pods) == "a=hash-a b=hash-b" })
	become := func(pods ...*corev1.Pod) {
		<-kubelet.pods
		kubelet.pods <- pods
		kubelet.events <- &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_MODIFIED, Pod: encode(podOf("file", "b", ""))}
	}
	// with is satisfied by these pods; until then none may be without a.
	with := func(want string) func(Answer) bool {
		return func(answer Answer) bool {
			if !slices.ContainsFunc(answer.Pods, func(pod readiness.StaticPod) bool { return pod.Name == "a" }) {
				t.Errorf("a is lost: %+v", answer)
			}
			return names(answer.Pods) == want
		}
	}
	become(podOf("file", "b", ""))
	until(t, answers, "between removal and addition", with("b=hash-b a=hash-a"))
	replaced := podOf("file", "a", "")
	replaced.Annotations["kubernetes.io/config.hash"] = "2"
	become(replaced, podOf("file", "b", ""))
	until(t, answers, "replaced", with("a=2 b=hash-b"))
	become(podOf("file", "b", ""), podOf("file", "c", ""))
	until(t, answers, "one added, one removed", with("b=hash-b c=hash-c a=2"))
	until(t, answers, "repeated too early", with("b=hash-b c=hash-c a=2"))
	clock.move(settle)
	until(t, answers, "confirmed", func(a Answer) bool { return names(a.Pods) == "b=hash-b c=hash-c" })
}

// Events of pods that are not static concern nobody here.
func TestConcerns(t *testing.T) {
	p := &PodsAPI{static: map[types.UID]bool{"known": true}}
	for name, test := range map[string]struct {
		event *podsv1alpha1.WatchPodsEvent
		want  bool
	}{
		"static":         {&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_ADDED, Pod: encode(podOf("file", "a", ""))}, true},
		"of the API":     {&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_MODIFIED, Pod: encode(podOf("api", "a", ""))}, false},
		"a known one":    {&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_DELETED, Pod: encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "known"}})}, true},
		"an unknown one": {&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_DELETED, Pod: encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}})}, false},
		"without a name": {&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_DELETED}, true},
		"unreadable":     {&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_ADDED, Pod: []byte("\xff")}, true},
	} {
		if got := p.concerns(test.event); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A directory that is made late, filled, emptied by removal and made again is followed.
func TestManifests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc", "manifests")
	answers := listen(t, &Manifests{Path: dir + "/", Node: "n1"})
	until(t, answers, "absent", func(a Answer) bool { return a.State == Waiting })
	for range 2 {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		until(t, answers, "empty", func(a Answer) bool { return a.State == Known && len(a.Pods) == 0 })
		file := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		until(t, answers, "filled", func(a Answer) bool { return a.State == Known && len(a.Pods) == 1 })
		if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
			t.Fatal(err)
		}
		until(t, answers, "gone", func(a Answer) bool { return a.State == Waiting })
	}
	optional := listen(t, &Manifests{Path: dir, Node: "n1", Optional: true})
	until(t, optional, "absent, as it may be", func(a Answer) bool { return a.State == Known })
}
