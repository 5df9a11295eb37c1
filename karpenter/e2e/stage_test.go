package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/livekarpenter"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// patience bounds every wait: Karpenter looks every 10 s, validates for 15 s, and a loaded machine is slow.
const patience = 4 * time.Minute

// A logBook collects the log of the process.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *logBook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

// lines returns the lines that have all of the words.
func (b *logBook) lines(words ...string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, line := range strings.Split(b.text.String(), "\n") {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

func (b *logBook) open() { slog.SetDefault(slog.New(slog.NewTextHandler(b, nil))) }

// rollcall is a controller in this process.
type rollcall struct {
	controller *karpenter.Controller
	claims     *karpenter.Claims
	stop       func()
}

func clientsOf(config *rest.Config) informers.Clients {
	config.UserAgent = "rollcall-e2e"
	return informers.Clients{
		Typed: kubernetes.NewForConfigOrDie(config), Dynamic: dynamic.NewForConfigOrDie(config), Metadata: metadata.NewForConfigOrDie(config),
	}
}

func startRollcall(config *rest.Config, pace time.Duration) (*rollcall, error) {
	clients := clientsOf(config)
	set, err := informers.New(clients, informers.Options{})
	if err != nil {
		return nil, err
	}
	claims, err := karpenter.NewClaims(clients, set, pace)
	if err != nil {
		return nil, err
	}
	keys := queue.New(queue.Options{})
	controller, err := karpenter.New(clients, set, karpenter.Options{
		Disruption: karpenter.DefaultConfig(), Mark: map[fate.Verdict]bool{fate.Lost: true}, Queue: keys, Identity: "e2e", Claims: claims,
	})
	if err != nil {
		return nil, err
	}
	stop, err := work(set, keys, claims)
	return &rollcall{controller, claims, stop}, err
}

// work fills the caches and has the queue worked on until stop is called. claims may be nil.
func work(set *informers.Set, keys *queue.Queue, claims *karpenter.Claims) (stop func(), err error) {
	ctx, end := context.WithCancel(context.Background())
	told := make(chan struct{})
	var caches, working sync.WaitGroup
	caches.Go(func() { set.Run(ctx) })
	filled := []cache.InformerSynced{set.Synced}
	if claims != nil {
		caches.Go(func() { claims.Run(ctx) })
		filled = append(filled, claims.Settled)
	}
	synced, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitForCacheSync(synced.Done(), filled...) {
		end()
		return nil, fmt.Errorf("the caches did not sync")
	}
	working.Go(func() { _ = keys.Run(ctx, told, 4) })
	return func() {
		close(told)
		working.Wait()
		end()
		caches.Wait()
	}, nil
}

// A stage is the one cluster of this process with Karpenter, its machines and rollcall.
type stage struct {
	cluster *livecluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	standIn *livekarpenter.StandIn
	karp    *livekarpenter.Karpenter
	*rollcall
	log logBook
}

var shared struct {
	once  sync.Once
	stage *stage
	err   error
}

// onStage starts what is shared on first use; it ends with the process.
func onStage(t *testing.T) *act {
	t.Helper()
	shared.once.Do(func() { shared.stage, shared.err = startStage(livecluster.Shared(t)) })
	if shared.err != nil {
		t.Fatalf("no stage to test on: %v", shared.err)
	}
	a := &act{T: t, stage: shared.stage}
	namespace, err := a.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "act-"}}, metav1.CreateOptions{})
	a.must(err)
	a.name = namespace.Name
	a.follow()
	return a
}

func startStage(cluster *livecluster.Cluster) (*stage, error) {
	ctx := context.Background()
	s := &stage{cluster: cluster, client: kubernetes.NewForConfigOrDie(cluster.Config()), dynamic: dynamic.NewForConfigOrDie(cluster.Config())}
	s.log.open()
	var err error
	if s.karp, err = livekarpenter.Start(ctx, cluster, os.Stderr); err != nil {
		return nil, err
	}
	if s.standIn, err = livekarpenter.StartStandIn(ctx, cluster.Config()); err != nil {
		return nil, err
	}
	s.rollcall, err = startRollcall(cluster.Config(), 0)
	return s, err
}

// An act is one test on the stage: a namespace and a NodePool of that name.
type act struct {
	*testing.T
	*stage
	name string

	mu   sync.Mutex
	seen []sight // guarded by mu
}

func (a *act) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *act) eventually(what string, condition func() bool) {
	a.Helper()
	err := wait.PollUntilContextTimeout(a.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		a.Fatalf("%s: %v\n%s", what, err, a.story())
	}
}
