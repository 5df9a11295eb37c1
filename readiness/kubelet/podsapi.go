package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/rollcall-dev/rollcall/readiness"
)

// Times and sizes of the PodsAPI.
const (
	// retry is how soon a kubelet that initializes or is away is asked again; it has no watch for that.
	retry = 250 * time.Millisecond
	// settle is when a list is repeated after an event: the kubelet tells of a change before it is complete. A pod that the
	// list has lost counts until then, and until twice that at worst: two seconds are promised for the whole way.
	settle = 500 * time.Millisecond
	// patience is how long a socket that is not there, or refuses, is waited for before the source counts as absent: a
	// kubelet that starts may not listen yet.
	patience = 2 * time.Second
	// maxList is the largest list that is taken; the library's own limit, 4 MiB, is less than 250 pods can have.
	maxList = 64 << 20
)

// PodsAPI is the kubelet's gRPC socket (KEP-4188, on by default from Kubernetes 1.37). It answers only once all of the
// kubelet's sources are read, and has static pods of files and of a URL alike. A watch event is a hint, the list is the
// answer.
type PodsAPI struct {
	Socket string

	now    func() time.Time   // time.Now, but in tests
	seen   bool               // a kubelet has answered here, if only that it initializes
	asked  time.Time          // since when
	static map[types.UID]bool // of the last list
	losses losses
}

// PodsAPIName is how the expected set names this source.
const PodsAPIName = "PodsAPI"

// Name implements Source.
func (p *PodsAPI) Name() string { return PodsAPIName }

// Run implements Source.
func (p *PodsAPI) Run(ctx context.Context, report func(Answer)) {
	changes := watchPath(ctx, p.Socket)
	if p.now == nil {
		p.now = time.Now
	}
	p.asked, p.losses.window = p.now(), settle
	for ctx.Err() == nil {
		if !exists(p.Socket) {
			answer := p.away(fmt.Errorf("there is no socket %s", p.Socket))
			report(answer)
			await(ctx, changes, answer.State == Waiting && !p.seen)
			continue
		}
		if err := p.follow(ctx, report); err != nil && ctx.Err() == nil {
			report(p.away(err))
			sleep(ctx, retry)
		}
	}
}

// await waits for a change, or for the end of patience where somebody is waited for.
func await(ctx context.Context, changes <-chan struct{}, patiently bool) {
	var end <-chan time.Time
	if patiently {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-ctx.Done():
	case <-changes:
	case <-end:
	}
}

// away makes an answer of what keeps the source from knowing. A kubelet that says that it initializes is waited for, also
// when it restarts before it has listed anything: the next source may know less. One that cannot be reached is no source,
// unless it was one before.
func (p *PodsAPI) away(err error) Answer {
	answer := Answer{State: Absent, Why: err.Error()}
	if status.Code(err) == codes.FailedPrecondition {
		p.seen = true
		answer.Why = "the kubelet has not read all of its sources yet"
	}
	if p.seen || p.now().Sub(p.asked) < patience {
		answer.State = Waiting
	}
	return answer
}

// follow reports the list, and again after each change, until the connection fails.
func (p *PodsAPI) follow(ctx context.Context, report func(Answer)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	connection, err := dial(p.Socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	client := podsv1alpha1.NewPodsClient(connection)
	stream, err := client.WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		return err
	}
	hints, failed := make(chan *podsv1alpha1.WatchPodsEvent), make(chan error, 1)
	go func() { failed <- receive(ctx, stream, hints) }()
	again := time.NewTimer(settle)
	again.Stop()
	synced := false
	for {
		hinted := false
		select {
		case err := <-failed:
			return err
		case event := <-hints:
			// Until all present pods have been sent, the list that follows has them.
			synced = synced || event.Type == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE
			if !synced || !p.concerns(event) {
				continue
			}
			hinted = true
		case <-again.C:
		}
		answer, err := p.list(ctx, client)
		if err != nil {
			return err
		}
		report(answer)
		// A repetition may be the first list that lacks a pod; no event need follow.
		if hinted || len(p.losses.missing) > 0 {
			again.Reset(settle)
		}
	}
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxList)),
		grpc.WithDisableServiceConfig(), grpc.WithReadBufferSize(8<<10), grpc.WithWriteBufferSize(4<<10))
}

func receive(ctx context.Context, stream podsv1alpha1.Pods_WatchPodsClient, hints chan<- *podsv1alpha1.WatchPodsEvent) error {
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case hints <- event:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// concerns tells whether an event can change the set: one of a static pod, the end of a listed one, or one that cannot be
// read.
func (p *PodsAPI) concerns(event *podsv1alpha1.WatchPodsEvent) bool {
	if event.Type == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE {
		return true
	}
	var pod corev1.Pod
	if pod.Unmarshal(event.Pod) != nil || pod.UID == "" {
		return true
	}
	return p.static[pod.UID] || readiness.IsStatic(&pod)
}

// list asks for the set. A replaced manifest is a removal and an addition for the kubelet, with a list possible in between:
// a pod that is no longer listed stays in the answer until the list that follows after settle has not got it either.
func (p *PodsAPI) list(ctx context.Context, client podsv1alpha1.PodsClient) (Answer, error) {
	asked := p.now()
	response, err := client.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
	if err != nil {
		return Answer{}, err
	}
	var static []*corev1.Pod
	uids := map[types.UID]bool{}
	for _, encoded := range response.Pods {
		pod := &corev1.Pod{}
		if err := pod.Unmarshal(encoded); err != nil {
			return Answer{}, errors.New("the kubelet's list cannot be read: " + err.Error())
		}
		if readiness.IsStatic(pod) {
			static = append(static, pod)
			uids[pod.UID] = true
		}
	}
	p.seen, p.static = true, uids
	return Answer{State: Known, Pods: p.losses.take(readiness.FromKubelet(static), asked)}, nil
}
