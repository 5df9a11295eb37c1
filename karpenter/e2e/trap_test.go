package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// joining is how many nodes join in each half of the test.
const joining = 20

// Karpenter's trap (facts/static-pods.md section 0 item 6). Where a node's condition is True before Karpenter has
// registered the node, this happens:
//
//  1. The Node Readiness Controller removes the startup taint and notes that it is done with the node.
//  2. Karpenter registers the node and puts back every startup taint that it misses.
//  3. The controller is done with the node, and Karpenter waits for the taint to go: neither will ever move again.
//
// rollcall's condition says AwaitingRegistration until step 2 is over.
func TestStartupTaintTrap(t *testing.T) {
	t.Run("a condition that does not wait", func(t *testing.T) {
		a := onStage(t)
		a.onNodes(a.writeTrue)
		rule := newRule(a)
		a.joinUnregistered(rule.see)
		a.eventually("the rule to be done with all nodes", func() bool { return rule.done() == joining })
		a.must(a.cluster.Allow(t.Context(), a.name))
		a.eventually("all nodes to be stuck", func() bool { return a.stuck(rule) == joining })
		t.Logf("%d of %d nodes keep their startup taint for ever, and %d of as many pods have a node", a.stuck(rule), joining, a.bound())
		if n := a.bound(); n > 0 {
			t.Errorf("%d pods are bound to nodes with a startup taint", n)
		}
	})
	for _, own := range []bool{false, true} {
		name := "rollcall's condition"
		if own {
			name = "rollcall's own release"
		}
		t.Run(name, func(t *testing.T) {
			a := onStage(t)
			stop, err := startGate(a.cluster.Config(), own)
			a.must(err)
			t.Cleanup(stop)
			a.onNodes(a.publishNone)
			if own {
				a.joinUnregistered(a.registerTaint())
			} else {
				a.joinUnregistered(newRule(a).see)
			}
			// Nobody has released one: each has its taint and the condition that says why.
			a.eventually("all nodes to await their registration", func() bool { return a.awaiting() == joining })
			a.must(a.cluster.Allow(t.Context(), a.name))
			a.eventually("all nodes to be initialized", func() bool { return a.initialized() == joining })
			a.eventually("all pods to have a node", func() bool { return a.bound() == joining })
			t.Logf("%d of %d nodes keep their startup taint, and %d of as many pods have a node", joining-a.initialized(), joining, a.bound())
		})
	}
}

// startGate starts rollcall's readiness reconciler, which releases nodes itself or leaves that to the rule.
func startGate(config *rest.Config, release bool) (stop func(), err error) {
	clients := clientsOf(config)
	set, err := informers.New(clients, informers.Options{})
	if err != nil {
		return nil, err
	}
	keys := queue.New(queue.Options{})
	if _, err := gate.New(clients.Typed, set, gate.Options{
		Taint: readiness.DefaultTaint, Condition: readiness.DefaultCondition, Settle: time.Second, Queue: keys, Identity: "e2e", ReleaseTaint: release,
	}); err != nil {
		return nil, err
	}
	return work(set, keys, nil)
}

// joinUnregistered has Karpenter make the nodes, each for one pod, with the readiness taint as a startup taint; taint sees
// to it that they bear it from the start. Karpenter cannot register them before the Refusal of the act's name is taken
// away, as where it is slow or its leader changes.
func (a *act) joinUnregistered(taint func(*corev1.Node)) {
	a.Helper()
	a.refuseRegistration()
	a.onNodes(taint)
	a.pool(small, func(pool *karpv1.NodePool) { pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{readinessTaint} })
	for i := range joining {
		a.pod(fmt.Sprintf("seat-%d", i), "", aSeat)
	}
}

// poolNodes are the act's nodes as they are now.
func (a *act) poolNodes() []corev1.Node {
	list, err := a.client.CoreV1().Nodes().List(a.Context(), metav1.ListOptions{LabelSelector: karpv1.NodePoolLabelKey + "=" + a.name})
	a.must(err)
	return list.Items
}

// stuck counts the nodes that nobody will free: they have the startup taint, Karpenter waits for it to go, and the rule
// has seen that and has nothing to do.
func (a *act) stuck(rule *rule) (n int) {
	for _, node := range a.poolNodes() {
		life, _ := a.controller.Life(node.Name)
		condition, stage, waits := life.Waiting()
		if readiness.DefaultTaint.On(&node) && waits && condition == karpv1.ConditionTypeInitialized && stage.Reason == "StartupTaintsExist" && rule.declined(node.Name) {
			n++
		}
	}
	return n
}

func (a *act) awaiting() (n int) {
	for _, node := range a.poolNodes() {
		c := readiness.ConditionOf(&node, readiness.DefaultCondition)
		if c != nil && c.Status == corev1.ConditionFalse && c.Reason == readiness.AwaitingRegistration && readiness.DefaultTaint.On(&node) {
			n++
		}
	}
	return n
}

func (a *act) initialized() (n int) {
	for _, node := range a.poolNodes() {
		if life, known := a.controller.Life(node.Name); known && life.Initialized.Is() && !readiness.DefaultTaint.On(&node) {
			n++
		}
	}
	return n
}

// bound counts the act's pods that have a node.
func (a *act) bound() (n int) {
	list, err := a.client.CoreV1().Pods(a.name).List(a.Context(), metav1.ListOptions{})
	a.must(err)
	for _, pod := range list.Items {
		if pod.Spec.NodeName != "" {
			n++
		}
	}
	return n
}
