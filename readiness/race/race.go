// Package race plays kubernetes/kubernetes#115325 on a livecluster: nodes join at once, each with a static pod that takes
// 60 % of its CPU and whose mirror is late, while a Deployment waits that would over-fill them. Without the gate the
// scheduler binds pods that the kubelets refuse, again and again; with it no node takes a pod before its static pods are on
// the books.
//
// It owns the course of the race and what is counted of it, for the test beside it and for the demo. What must come out is
// for them to say. It knows rollcall's programs by their command lines, and must not import karpenter.
package race

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/readiness"
)

// Cause is why a node's mirror is late.
type Cause string

// The causes, each of which a cluster can have.
const (
	AbsentNamespace Cause = "its namespace is absent"
	Denied          Cause = "an admission policy denies it"
	Throttled       Cause = "its kubelet is throttled"
)

// Sizes. A machine has room for three of the Deployment's pods, and for one beside its static pod.
const (
	cores       = 2
	staticCPU   = "1200m"
	podCPU      = "600m"
	podsPerNode = 3
)

// heldTimeout bounds each wait of a race with the gate. A kubelet tries a mirror again after 10 to 15 s, a throttled one
// sends one request a second.
const heldTimeout = 4 * time.Minute

// clearTimeout bounds how long an end may take where the cluster no longer answers.
const clearTimeout = time.Minute

// Options say which race is played.
type Options struct {
	// Name is a DNS label; nodes and namespaces begin with it.
	Name string
	// Causes has one for each node.
	Causes []Cause
	// Gate has rollcall's programs, which then hold the nodes. Without it the nodes join as they are.
	Gate *liverollcall.Binaries
	// Enough failed pods, or Patience, end a race without the gate.
	Enough   int
	Patience time.Duration
	// Say hears what happens.
	Say func(format string, args ...any)
}

// Result is what was seen of a race.
type Result struct {
	// Refused are the pods that failed with OutOfcpu, by why their node's mirror was late. Failed counts all that failed.
	Refused map[Cause]int
	Failed  int
	// Running and Pending are the Deployment's other pods at the end.
	Running, Pending int
	Replicas         int // what the Deployment asks for
	// Held are the nodes that had their condition False while their mirror was missing.
	Held int
	// Released are the nodes that were seen with the taint and then without, Early those of them that lost it before each
	// of their static pods had its mirror.
	Released, Early []string
	// Lasted is the time from the first machine's start to the end.
	Lasted time.Duration
}

// AllRefused counts the pods that failed with OutOfcpu.
func (r Result) AllRefused() (n int) {
	for _, pods := range r.Refused {
		n += pods
	}
	return n
}

// race is one that is being played.
type race struct {
	Options
	cluster   *livecluster.Cluster
	client    kubernetes.Interface
	directory string // of the machines' manifest directories
	ledger    *ledger
	machines  []*livecluster.Machine
	programs  []*liverollcall.Program // the controller first
}

// Play plays a race and takes everything away again that it made, but for namespaces that go by and by.
func Play(ctx context.Context, cluster *livecluster.Cluster, o Options) (result Result, err error) {
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return result, err
	}
	directory, err := os.MkdirTemp("", "rollcall-race-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(directory)
	r := &race{Options: o, cluster: cluster, client: client, directory: directory, machines: make([]*livecluster.Machine, len(o.Causes))}
	if r.ledger, err = openLedger(ctx, client, r.namespace()); err != nil {
		return result, err
	}
	defer r.ledger.close()
	// What was made is taken away even where the race was broken off.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
		defer cancel()
		err = errors.Join(err, r.clear(ctx))
	}()
	if err := r.prepare(ctx); err != nil {
		return result, fmt.Errorf("preparing the race: %w", err)
	}
	start := time.Now()
	if err := r.join(ctx); err != nil {
		return result, err
	}
	if o.Gate == nil {
		err = r.unheld(ctx)
	} else {
		result.Held, err = r.held(ctx)
	}
	r.ledger.count(&result, r.staticPods())
	result.Refused = r.refused()
	result.Replicas, result.Lasted = r.replicas(), time.Since(start)
	return result, err
}

func (r *race) namespace() string      { return r.Name }
func (r *race) node(i int) string      { return fmt.Sprintf("%s-%d", r.Name, i) }
func (r *race) bootID(i int) string    { return "boot-of-" + r.node(i) }
func (r *race) replicas() int          { return podsPerNode * len(r.Causes) }
func (r *race) manifests(i int) string { return filepath.Join(r.directory, r.node(i)) }
func (r *race) policy() string         { return r.spaceOf(Denied) }
func (r *race) spaceOf(c Cause) string { return r.Name + "-" + suffix[c] }
func (r *race) with(cause Cause) []string {
	var nodes []string
	for i, c := range r.Causes {
		if c == cause {
			nodes = append(nodes, r.node(i))
		}
	}
	return nodes
}

func (r *race) refused() map[Cause]int {
	perNode, perCause := r.ledger.refused(), map[Cause]int{}
	for i, cause := range r.Causes {
		perCause[cause] += perNode[r.node(i)]
	}
	return perCause
}

// prepare makes the Deployment, whose pods wait for nodes, the policy, and the manifests of the machines to come; and it
// starts the controller where there is a gate.
func (r *race) prepare(ctx context.Context) error {
	for _, create := range []func(context.Context) error{r.createDeployment, r.createObstacles, r.writeManifests} {
		if err := create(ctx); err != nil {
			return err
		}
	}
	if r.Gate == nil {
		return nil
	}
	controller, err := r.Gate.Controller(ctx, r.cluster, "--release-taint")
	if err != nil {
		return err
	}
	r.programs = append(r.programs, controller)
	return nil
}

// join starts all machines at once and, where there is a gate, the agent of each.
func (r *race) join(ctx context.Context) error {
	r.Say("%d nodes join at once; each has a static pod of %s on %d cores, and its mirror is late: %s",
		len(r.Causes), staticCPU, cores, r.causes())
	errs := make([]error, len(r.Causes))
	var starting sync.WaitGroup
	for i := range r.Causes {
		starting.Go(func() { r.machines[i], errs[i] = r.cluster.AddNode(ctx, r.machine(i)) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil || r.Gate == nil {
		return err
	}
	for i, machine := range r.machines {
		agent, err := r.Gate.Agent(r.cluster, machine, r.bootID(i))
		if err != nil {
			return err
		}
		r.programs = append(r.programs, agent)
	}
	return nil
}

// machine is one that registers with the readiness taint where there is a gate.
func (r *race) machine(i int) livecluster.Node {
	node := livecluster.Node{
		Name: r.node(i), CPU: cores, StaticPods: r.manifests(i), BootID: r.bootID(i),
		Labels: map[string]string{raceLabel: r.Name}, NoWait: true,
	}
	if r.Causes[i] == Throttled {
		node.APIQPS = 1
	}
	if r.Gate != nil {
		node.Taints = []string{readiness.TaintKey + "=pending:NoSchedule"}
	}
	return node
}

// unheld lets the race run until it is bad enough.
func (r *race) unheld(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, r.Patience, true, func(context.Context) (bool, error) {
		return r.ledger.failed() >= r.Enough, nil
	})
	if ctx.Err() == nil && wait.Interrupted(err) {
		return nil // fewer failed; the number says so
	}
	return err
}

// held waits until the nodes are known to be held, makes their mirrors possible, and waits for the end of it all: as many
// pods run as fit, the others wait.
func (r *race) held(ctx context.Context) (int, error) {
	waits := r.with(AbsentNamespace)
	waits = append(waits, r.with(Denied)...)
	if err := r.await(ctx, "every node whose mirror is refused to be held", func() bool {
		return r.ledger.allHeld(waits) && r.ledger.nodes() == len(r.Causes)
	}); err != nil {
		return 0, err
	}
	held := r.ledger.heldNodes()
	r.Say("%d nodes are held, MirrorMissing; %d pods wait, %d failed", held, r.ledger.pending(), r.ledger.failed())
	if err := r.lift(ctx); err != nil {
		return held, err
	}
	r.Say("the namespace is made, the policy is gone")
	fit := len(r.Causes)
	return held, r.await(ctx, fmt.Sprintf("every node to be released and %d of %d pods to run", fit, r.replicas()), func() bool {
		return r.ledger.released() == len(r.Causes) && r.ledger.running() == fit && r.ledger.pending() == r.replicas()-fit
	})
}

// await waits for what the ledger is to show.
func (r *race) await(ctx context.Context, what string, shows func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, heldTimeout, true, func(context.Context) (bool, error) { return shows(), nil })
	if err == nil {
		return nil
	}
	err = fmt.Errorf("waiting for %s: %w; the nodes: %s", what, err, r.ledger.describe())
	if len(r.programs) > 0 {
		return r.programs[0].Explain(err)
	}
	return err
}

// clear takes the Deployment, the machines and their Nodes away, and what held them.
func (r *race) clear(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	errs := []error{r.client.AppsV1().Deployments(r.namespace()).Delete(ctx, deployment, metav1.DeleteOptions{PropagationPolicy: &background})}
	for i, machine := range r.machines {
		if machine != nil {
			errs = append(errs, r.cluster.KillNode(ctx, r.node(i)), r.client.CoreV1().Nodes().Delete(ctx, r.node(i), metav1.DeleteOptions{}))
		}
	}
	for _, program := range r.programs {
		program.Stop()
	}
	errs = append(errs, r.cluster.Allow(ctx, r.policy()))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clearing up after the race: %w", err)
	}
	return nil
}
