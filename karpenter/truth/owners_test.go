package truth

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// saysBudget is how a message tells that an eviction is refused.
const saysBudget = "PodDisruptionBudget refuses its eviction"

// bare returns the making of one pod without a controller.
func bare(mods ...podMod) func(*site) {
	return func(s *site) { s.create(s.pod("", append([]podMod{once}, mods...)...)) }
}

// bareScenarios are rules 1 to 4.
var bareScenarios = []scenario{
	{name: "succeeded", make: bare(annotated(exitsAfter, "1s")), shape: awaitEnd},
	{name: "failed", make: bare(annotated(exitsAfter, "1s"), annotated(exitCode, "1")), shape: awaitEnd},
	{
		name: "static-pod",
		make: func(s *site) {
			s.manifest("static.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: static-pod, namespace: %s, labels: {%s: static-pod}}
spec: {containers: [{name: c, image: "i:1"}]}
`, s.namespace, scenarioLabel))
		},
		pods: []expectation{expect(fate.Static, fate.MirrorPod, notRecreated).leftAlone("a drain does not touch it")},
	},
	{
		name: "node-owned",
		make: func(s *site) { s.create(s.pod("", ownedBy(s.nodeRef()))) },
		pods: []expectation{expect(fate.GoesWithNode, fate.NodeOwned, notRecreated)},
	},
	{
		name: "node-owned-no-controller",
		make: func(s *site) { s.create(s.pod("", ownedBy(beside(s.nodeRef())))) },
		pods: []expectation{expect(fate.GoesWithNode, fate.NodeOwned, notRecreated)},
	},
	{
		name: "daemonset",
		make: func(s *site) {
			s.create(&appsv1.DaemonSet{ObjectMeta: s.meta(""), Spec: appsv1.DaemonSetSpec{Selector: s.selector(), Template: s.template(member)}})
		},
		pods: []expectation{expect(fate.GoesWithNode, fate.DaemonSet, notRecreated).leftAlone(""), unharmed()},
	},
	{
		name: "daemonset-deleted",
		make: func(s *site) {
			s.create(&appsv1.DaemonSet{ObjectMeta: s.meta(""), Spec: appsv1.DaemonSetSpec{Selector: s.selector(), Template: s.template(member, slow)}})
		},
		shape: func(s *site) {
			s.delete(daemonSetResource, s.scenario, metav1.DeletePropagationBackground)
			s.mine("the garbage collector", 1, terminating)
		},
		pods: []expectation{lost(fate.OwnerGone)},
	},
	{
		name: "daemonset-annotation", make: bare(annotated("cluster-autoscaler.kubernetes.io/daemonset-pod", "true")),
		pods: []expectation{expect(fate.GoesWithNode, fate.DaemonSetAnnotation, notRecreated)},
	},
	{
		name: "daemonset-of-another-group", make: bare(ownedBy(phantom("DaemonSet", "apps.kruise.io"))),
		pods: []expectation{expect(fate.GoesWithNode, fate.DaemonSet, notRecreated).assumed()},
	},
	{name: "bare", make: bare(), pods: []expectation{lost(fate.NoController)}},
	{
		name: "bare-under-budget", make: bare(), shape: underBudgets(""),
		pods: []expectation{lost(fate.NoController).flagged(fate.BlockedByPDB).leftAlone(saysBudget)},
	},
	{
		name: "bare-under-two-budgets", make: bare(), shape: underBudgets("-a", "-b"),
		pods: []expectation{lost(fate.NoController).flagged(fate.BlockedByPDB).leftAlone(saysBudget)},
	},
	{
		name: "bare-with-finalizer", make: bare(finalized),
		pods: []expectation{expect(fate.Lost, fate.NoController, stuck).flagged(fate.HasFinalizer)},
	},
	{
		name: "orphaned", make: func(s *site) { s.create(s.replicaSet(1)) },
		shape: func(s *site) {
			s.delete(replicaSetResource, s.scenario, metav1.DeletePropagationOrphan)
			s.mine("the orphan", 1, func(p *corev1.Pod) bool { return len(p.OwnerReferences) == 0 })
		},
		pods: []expectation{lost(fate.NoController)},
	},
	{
		name: "released-by-labels",
		make: func(s *site) {
			rs := s.replicaSet(1)
			rs.Spec.Selector.MatchLabels["app"], rs.Spec.Template.Labels["app"] = "x", "x"
			s.create(rs)
		},
		shape: func(s *site) {
			pod := s.mine("a pod", 1, running)[0]
			s.patch(podResource, pod.Name, fmt.Sprintf(`{"metadata":{"labels":{"app":"y",%q:"released"}}}`, partLabel))
			s.mine("another pod", 2, running)
		},
		pods: []expectation{lost(fate.NoController).of("released"), returns(fate.ReplicaSet)},
	},
}

// awaitEnd returns when the scenario's pod has ended.
func awaitEnd(s *site) { s.mine("the end of the pod", 1, finished) }

// underBudgets makes budgets that allow nothing.
func underBudgets(suffixes ...string) func(*site) {
	return func(s *site) {
		for _, suffix := range suffixes {
			s.create(s.budget(suffix))
			s.awaitBudget(suffix)
		}
	}
}

// ownerScenarios are rules 5 to 7, 10, 11 and the custom controllers of rule 15.
var ownerScenarios = []scenario{
	{
		name: "owner-deleted", make: func(s *site) { s.create(s.replicationController(slow)) },
		shape: func(s *site) {
			s.delete(controllerResource, s.scenario, metav1.DeletePropagationBackground)
			s.mine("the garbage collector", 1, terminating)
		},
		pods: []expectation{lost(fate.OwnerGone).flagged(fate.Terminating)},
	},
	{
		name: "owner-is-a-namesake", make: func(s *site) { s.create(s.replicaSet(1, slow)) },
		shape: func(s *site) {
			s.delete(replicaSetResource, s.scenario, metav1.DeletePropagationBackground)
			s.mine("the garbage collector", 1, terminating)
			s.create(s.replicaSet(0))
		},
		pods: []expectation{lost(fate.OwnerGone).flagged(fate.Terminating)},
	},
	{
		name: "owner-of-no-served-kind", make: bare(ownedBy(phantom("Phantom", "example.org"))),
		pods: []expectation{lost(fate.OwnerGone).assumed()},
	},
	{
		name: "configmap-owns", make: func(s *site) { s.create(s.pod("", ownedBy(beside(s.create(s.configMap()))))) },
		pods: []expectation{expect(fate.Unsure, fate.OwnerIsNoController, notRecreated).assumed()},
	},
	{
		name: "widget-owns-without-controlling",
		make: func(s *site) { s.create(s.pod("", ownedBy(beside(s.create(s.custom(widgetKind, nil)))))) },
		pods: []expectation{expect(fate.Unsure, fate.OwnerIsNoController, notRecreated)},
	},
	{
		name: "configmap-controls", make: func(s *site) { s.create(s.pod("", ownedBy(s.create(s.configMap())))) },
		pods: []expectation{expect(fate.Unsure, fate.OwnerIsNoController, notRecreated).assumed()},
	},
	{
		name: "controller-gone-other-owner-lives",
		make: func(s *site) {
			s.create(s.pod("", ownedBy(missing(), beside(s.create(s.configMap())))))
			s.mine("the dangling reference to be stripped", 1, func(p *corev1.Pod) bool { return len(p.OwnerReferences) == 1 })
		},
		pods: []expectation{expect(fate.Unsure, fate.OwnerIsNoController, notRecreated).assumed()},
	},
	{
		name: "adopted-by-labels",
		make: func(s *site) {
			s.create(s.pod("", member, ownedBy(beside(s.create(s.configMap())))))
			s.create(s.replicaSet(1))
			s.mine("the adoption", 1, func(p *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(p) != nil })
		},
		pods: []expectation{returns(fate.ReplicaSet)},
	},
	{
		name: "replicaset-deleting", make: func(s *site) { rs := s.replicaSet(1); keep(rs); s.create(rs) },
		shape: func(s *site) { s.delete(replicaSetResource, s.scenario, metav1.DeletePropagationBackground) },
		pods:  []expectation{lost(fate.OwnerDeleting)},
	},
	{
		name: "replicationcontroller-deleting", make: func(s *site) { rc := s.replicationController(); keep(rc); s.create(rc) },
		shape: func(s *site) { s.delete(controllerResource, s.scenario, metav1.DeletePropagationBackground) },
		pods:  []expectation{lost(fate.OwnerDeleting)},
	},
	{
		name: "statefulset-deleting", make: func(s *site) { set := s.statefulSet(1); keep(set); s.create(set) },
		shape: func(s *site) { s.delete(setResource, s.scenario, metav1.DeletePropagationBackground) },
		pods:  []expectation{lost(fate.OwnerDeleting)},
	},
	{
		name: "job-deleting", make: jobOf(func(j *batchv1.Job) { keep(j) }),
		shape: func(s *site) { s.delete(jobResource, s.scenario, metav1.DeletePropagationBackground) },
		pods:  []expectation{lost(fate.OwnerDeleting)},
	},
	{
		name: "driver-is-bare", make: func(s *site) { s.create(s.pod("-driver", part("driver"))) },
		shape: executors, partner: executorThere,
		pods: []expectation{lost(fate.NoController).of("driver"), lost(fate.OwnerPodLost), costs(fate.OwnerPodLost)},
	},
	{
		name: "driver-returns", make: func(s *site) { s.create(s.replicaSet(1, part("driver"))) },
		shape: executors, partner: executorThere,
		pods: []expectation{returns(fate.ReplicaSet).of("driver"), lost(fate.OwnerPodLost), costs(fate.OwnerPodLost)},
	},
	{
		name: "driver-is-of-a-failing-job",
		make: jobOf(backoff(0), work(2, 1), with(part("driver"))), partner: func(s *site) {
			widen(s)
			s.mine("a driver on each node", 2, isDriver)
			there := s.mine("the driver there", 1, func(p *corev1.Pod) bool { return isDriver(p) && p.Spec.NodeName == s.stays })[0]
			s.executorOf(there, s.going)
			s.executorOf(there, s.stays)
		},
		pods: []expectation{
			givesUp.of("driver"), costs(fate.JobWillNotRetry).of("driver"), lost(fate.OwnerPodLost), costs(fate.OwnerPodLost),
		},
	},
	{
		name: "driver-stays",
		partner: func(s *site) {
			s.create(s.pod("-executor", on(s.going), ownedBy(s.create(s.pod("-driver", on(s.stays))))))
		},
		pods: []expectation{returns(fate.CustomController).assumed().inFact(notRecreated), unharmed()},
	},
	{
		name: "workflow-without-retry",
		make: func(s *site) {
			workflow := s.custom(workflowKind, map[string]any{"templates": []any{map[string]any{"name": "step"}}})
			s.create(s.pod("", once, ownedBy(s.create(workflow))))
		},
		pods: []expectation{lost(fate.NoRetryStrategy)},
	},
	{
		name: "custom-controller", make: func(s *site) { s.create(s.pod("", ownedBy(s.create(s.custom(widgetKind, nil))))) },
		pods: []expectation{returns(fate.CustomController).assumed().inFact(notRecreated)},
	},
}

// missing is a reference to a controller that never was.
func missing() metav1.OwnerReference {
	return phantom("ReplicaSet", "apps")
}

// keep keeps an object that is deleted.
func keep(o metav1.Object) { o.SetFinalizers([]string{holdFinalizer}) }

func isDriver(p *corev1.Pod) bool { return p.Labels[partLabel] == "driver" && running(p) }

// executors makes a pod that the driver controls beside it.
func executors(s *site) { s.executorOf(s.mine("the driver", 1, isDriver)[0], s.going) }

// executorThere makes one on the healthy node.
func executorThere(s *site) { s.executorOf(s.mine("the driver", 1, isDriver)[0], s.stays) }

func (s *site) executorOf(driver *corev1.Pod, node string) {
	yes := true
	s.create(s.pod("-on-"+node, on(node), ownedBy(metav1.OwnerReference{
		APIVersion: "v1", Kind: "Pod", Name: driver.Name, UID: driver.UID, Controller: &yes,
	})))
}
