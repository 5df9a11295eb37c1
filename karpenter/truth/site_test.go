package truth

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

const (
	// patience bounds every wait while a round is set up.
	patience = 3 * time.Minute
	// settlePatience bounds the wait for outcomes: PodGC takes 40 to 60 s and a Job's third back-off 40 s more.
	settlePatience = 4 * time.Minute
	// quiet is how long nothing may change before the outcomes count. Jobs that give up say so at once, and the longest
	// back-off of the others has passed by then: one of the scenarios waits for it.
	quiet     = 10 * time.Second
	pollEvery = 200 * time.Millisecond
)

const (
	domain        = "truth.rollcall.dev/"
	roundLabel    = domain + "round" // on nodes and in pods' nodeSelectors
	scenarioLabel = domain + "scenario"
	partLabel     = domain + "part" // tells the pods of one scenario apart
	memberLabel   = domain + "member"
	holdTaint     = domain + "hold" // keeps a node empty for a while
	gate          = domain + "gate" // a readiness gate
	holdFinalizer = domain + "hold"
	signal        = "spot-interruption" // the taint that marks a node for disruption
	zoneLabel     = corev1.LabelTopologyZone
	jobIndexLabel = "batch.kubernetes.io/job-completion-index"
	stopAfter     = "cluster.rollcall.dev/stop-after"
	exitsAfter    = "cluster.rollcall.dev/exits-after"
	exitCode      = "cluster.rollcall.dev/exit-code"
)

// A site is a round's part of the cluster: a node that goes, one that stays, and a namespace.
type site struct {
	*testing.T
	round, namespace, going, stays string

	cluster *livecluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	machine *livecluster.Machine // the one that goes
	node    *corev1.Node         // the one that goes
	ledger  *ledger
	// scenario is the name of the scenario whose functions run.
	scenario  string
	scenarios []scenario
}

// newSite adds the nodes, which hold back every pod that does not tolerate it.
func newSite(t *testing.T, cluster *livecluster.Cluster, round string) *site {
	t.Helper()
	s := &site{
		T: t, round: round, namespace: round, going: round + "-going", stays: round + "-stays", cluster: cluster, scenarios: scenarios,
		client: kubernetes.NewForConfigOrDie(cluster.Config()), dynamic: dynamic.NewForConfigOrDie(cluster.Config()),
	}
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	s.must(err)
	add := func(name string, cpu int) *livecluster.Machine {
		m, err := cluster.AddNode(t.Context(), livecluster.Node{
			Name: name, CPU: cpu, Memory: "16Gi", Pods: 250, Taints: []string{holdTaint + "=:NoSchedule"},
			Labels: map[string]string{roundLabel: round, zoneLabel: name},
		})
		s.must(err)
		return m
	}
	s.machine = add(s.going, bigNode)
	add(s.stays, smallNode)
	s.node, err = s.client.CoreV1().Nodes().Get(t.Context(), s.going, metav1.GetOptions{})
	s.must(err)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	s.ledger, err = newLedger(s.client, s.namespace, stop)
	s.must(err)
	s.eventually("the default service account", func() bool {
		_, err := s.client.CoreV1().ServiceAccounts(s.namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return s
}

// setUp brings all scenarios to the state that check is asked about. First all pods land on the node that goes, since the
// other holds them back; then that node is marked, and what a scenario wants on the other is made.
func (s *site) setUp() {
	s.each(func(sc *scenario) func(*site) { return sc.make })
	s.each(func(sc *scenario) func(*site) { return sc.pend })
	s.taint(s.going, nil)
	s.eventually("all pods to run on the node that goes", func() bool { return s.steady(true) })
	s.each(func(sc *scenario) func(*site) { return sc.shape })
	s.taint(s.going, []corev1.Taint{{Key: signal, Value: "true", Effect: corev1.TaintEffectNoSchedule}})
	s.awaitTaint()
	s.taint(s.stays, nil)
	s.each(func(sc *scenario) func(*site) { return sc.partner })
	s.eventually("the pods of every scenario", func() bool { return s.steady(false) && s.complete() })
}

func (s *site) each(step func(*scenario) func(*site)) {
	for i := range s.scenarios {
		if do := step(&s.scenarios[i]); do != nil {
			s.scenario = s.scenarios[i].name
			do(s)
		}
	}
	s.scenario = ""
}

// steady says whether every pod runs, has ended or is Terminating. Where anyPending, pods without a node do not matter.
func (s *site) steady(anyPending bool) bool {
	return len(s.ledger.living(func(p *corev1.Pod) bool {
		settled := p.Status.Phase != corev1.PodPending || p.DeletionTimestamp != nil
		return !settled && !(anyPending && unschedulable(p))
	})) == 0
}

// complete says whether every scenario has as many unfinished pods on either node as it expects.
func (s *site) complete() bool {
	for i := range s.scenarios {
		for _, e := range s.scenarios[i].pods {
			if s.count(&s.scenarios[i], e) != e.count {
				return false
			}
		}
	}
	return true
}

// count returns how many unfinished pods the expectation is about.
func (s *site) count(sc *scenario, e expectation) int {
	return len(s.ledger.living(func(p *corev1.Pod) bool {
		if p.Labels[scenarioLabel] != sc.name || finished(p) {
			return false
		}
		of, listed := s.wanted(p, p.Spec.NodeName == s.going)
		return listed && of == e
	}))
}

// awaitTaint returns when the scheduler has seen that the node is marked.
func (s *site) awaitTaint() {
	canary := s.pod("canary", onlyOn(s.going))
	s.create(canary)
	find := func(p *corev1.Pod) bool { return p.Name == canary.Name }
	s.eventually("the scheduler to see the taint", func() bool {
		found := s.ledger.living(find)
		return len(found) == 1 && unschedulable(found[0])
	})
	s.must(s.client.CoreV1().Pods(s.namespace).Delete(s.Context(), canary.Name, metav1.DeleteOptions{}))
	s.eventually("the canary to go", func() bool { return len(s.ledger.living(find)) == 0 })
}

func (s *site) taint(name string, taints []corev1.Taint) {
	s.eventually("tainting "+name, func() bool {
		node, err := s.client.CoreV1().Nodes().Get(s.Context(), name, metav1.GetOptions{})
		s.must(err)
		node.Spec.Taints = taints
		_, err = s.client.CoreV1().Nodes().Update(s.Context(), node, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			s.must(err)
		}
		return err == nil
	})
}

// create makes the object and returns a reference to it as a controller.
func (s *site) create(o runtime.Object) metav1.OwnerReference {
	s.Helper()
	u, isUnstructured := o.(*unstructured.Unstructured)
	if !isUnstructured {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		s.must(err)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		s.must(err)
		u = &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(kinds[0])
	}
	resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	made, err := s.resource(resource, u.GetNamespace()).Create(s.Context(), u, metav1.CreateOptions{})
	if err != nil {
		s.Fatalf("%s: creating %s %s: %v", s.scenario, u.GetKind(), u.GetName(), err)
	}
	yes := true
	return metav1.OwnerReference{APIVersion: made.GetAPIVersion(), Kind: made.GetKind(), Name: made.GetName(), UID: made.GetUID(), Controller: &yes}
}

func (s *site) resource(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return s.dynamic.Resource(resource)
	}
	return s.dynamic.Resource(resource).Namespace(namespace)
}

// patch merges the JSON into an object of the namespace.
func (s *site) patch(resource schema.GroupVersionResource, name, patch string, subresources ...string) {
	s.Helper()
	_, err := s.resource(resource, s.namespace).Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		s.Fatalf("%s: patching %s %s: %v", s.scenario, resource.Resource, name, err)
	}
}

func (s *site) delete(resource schema.GroupVersionResource, name string, propagation metav1.DeletionPropagation) {
	s.Helper()
	err := s.resource(resource, s.namespace).Delete(s.Context(), name, metav1.DeleteOptions{PropagationPolicy: &propagation})
	if err != nil {
		s.Fatalf("%s: deleting %s %s: %v", s.scenario, resource.Resource, name, err)
	}
}

// mine waits until the scenario has n pods that keep lets through, and returns them.
func (s *site) mine(what string, n int, keep func(*corev1.Pod) bool) []*corev1.Pod {
	s.Helper()
	var pods []*corev1.Pod
	s.eventually(what, func() bool {
		pods = s.ledger.living(func(p *corev1.Pod) bool { return p.Labels[scenarioLabel] == s.scenario && keep(p) })
		return len(pods) == n
	})
	return pods
}

// manifest writes a static pod for the node that goes.
func (s *site) manifest(file, text string) {
	s.must(os.WriteFile(filepath.Join(s.machine.StaticPods, file), []byte(text), 0o600))
}

func (s *site) eventually(what string, condition func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), pollEvery, patience, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		s.Fatalf("%s: waiting for %s: %v\n%s", s.round, s.scenario+" "+what, err, s.unsettled())
	}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
