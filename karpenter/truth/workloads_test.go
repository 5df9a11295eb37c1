package truth

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// replicas returns the making of a ReplicaSet.
func replicas(n int32, mods ...podMod) func(*site) {
	return func(s *site) { s.create(s.replicaSet(n, mods...)) }
}

// replicaScenarios are rules 8, 13 and 15 for ReplicaSets and ReplicationControllers.
var replicaScenarios = []scenario{
	{name: "replicaset", make: replicas(2), pods: []expectation{returns(fate.ReplicaSet).times(2)}},
	{
		name: "replicationcontroller", make: func(s *site) { s.create(s.replicationController()) },
		pods: []expectation{returns(fate.ReplicationController)},
	},
	{
		name: "deployment",
		make: func(s *site) {
			s.create(&appsv1.Deployment{ObjectMeta: s.meta(""), Spec: appsv1.DeploymentSpec{Selector: s.selector(), Template: s.template(member)}})
		},
		pods: []expectation{returns(fate.ReplicaSet)},
	},
	{
		name: "replicaset-of-an-older-version", make: replicas(1),
		shape: func(s *site) {
			pod := s.mine("a pod", 1, running)[0].DeepCopy()
			pod.OwnerReferences[0].APIVersion = "apps/v1beta2"
			_, err := s.client.CoreV1().Pods(s.namespace).Update(s.Context(), pod, metav1.UpdateOptions{})
			s.must(err)
		},
		pods: []expectation{returns(fate.ReplicaSet)},
	},
	{
		// The garbage collector strikes the Node from the owners when it is gone: the controller still lives.
		name: "replicaset-and-node-own", make: replicas(1),
		shape: func(s *site) {
			pod := s.mine("a pod", 1, running)[0].DeepCopy()
			pod.OwnerReferences = append(pod.OwnerReferences, beside(s.nodeRef()))
			_, err := s.client.CoreV1().Pods(s.namespace).Update(s.Context(), pod, metav1.UpdateOptions{})
			s.must(err)
		},
		pods: []expectation{returns(fate.ReplicaSet)},
	},
	{
		name: "replicaset-under-budget", make: replicas(1), shape: underBudgets(""),
		pods: []expectation{returns(fate.ReplicaSet).flagged(fate.BlockedByPDB).leftAlone(saysBudget)},
	},
	{
		name: "replicaset-with-finalizer", make: replicas(1, finalized),
		pods: []expectation{returns(fate.ReplicaSet).flagged(fate.HasFinalizer)},
	},
	{
		name: "replicaset-with-emptydir",
		make: replicas(1, spec(func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		})),
		pods: []expectation{returns(fate.ReplicaSet).flagged(fate.EmptyDirData)},
	},
	{
		// It may come back on the node that goes, where a drain does not look again; there it sees the machine die.
		name: "replicaset-tolerates",
		make: replicas(1, spec(func(p *corev1.PodSpec) {
			p.Tolerations = []corev1.Toleration{
				{Key: signal, Operator: corev1.TolerationOpExists},
				{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists},
			}
		})),
		pods: []expectation{returns(fate.ReplicaSet)},
	},
	{
		name: "replicaset-scaled-to-zero", make: replicas(1, slow),
		shape: func(s *site) {
			s.patch(replicaSetResource, s.scenario, `{"spec":{"replicas":0}}`)
			s.mine("the scale-down", 1, terminating)
		},
		pods: []expectation{lost(fate.OwnerScaledDown).flagged(fate.Terminating)},
	},
	{
		name: "replicationcontroller-scaled-to-zero", make: func(s *site) { s.create(s.replicationController(slow)) },
		shape: func(s *site) {
			s.patch(controllerResource, s.scenario, `{"spec":{"replicas":0}}`)
			s.mine("the scale-down", 1, terminating)
		},
		pods: []expectation{lost(fate.OwnerScaledDown).flagged(fate.Terminating)},
	},
	{
		name: "replicaset-surplus", make: replicas(2, slow),
		shape: func(s *site) {
			s.patch(replicaSetResource, s.scenario, `{"spec":{"replicas":1}}`)
			s.mark(s.mine("the scale-down", 1, terminating)[0], "surplus")
		},
		pods: []expectation{expect(fate.Returns, fate.AlreadyReplaced, notRecreated).of("surplus"), returns(fate.ReplicaSet)},
	},
	{
		name: "replicaset-already-replaced", make: replicas(1, slow),
		shape: func(s *site) {
			old := s.mine("a pod", 1, running)[0]
			s.mark(old, "replaced")
			s.delete(podResource, old.Name, metav1.DeletePropagationBackground)
			s.mine("its successor", 1, running)
		},
		pods: []expectation{expect(fate.Returns, fate.AlreadyReplaced, notRecreated).of("replaced"), returns(fate.ReplicaSet)},
	},
}

// mark makes the pod a part of its own.
func (s *site) mark(pod *corev1.Pod, part string) {
	s.patch(podResource, pod.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, partLabel, part))
}

// statefulSetScenarios are rules 8, 12 and 15 for StatefulSets.
var statefulSetScenarios = []scenario{
	{
		name: "statefulset", make: func(s *site) { s.create(s.statefulSet(2)) },
		pods: []expectation{returns(fate.StatefulSet).times(2)},
	},
	{
		name: "statefulset-from-five",
		make: func(s *site) {
			set := s.statefulSet(1)
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
			s.create(set)
		},
		pods: []expectation{returns(fate.StatefulSet)},
	},
	{
		// The highest ordinal takes its time, so the one below it still runs although the set has no place for it.
		name: "statefulset-scaled-down", make: func(s *site) { s.create(s.statefulSet(3, slow)) },
		shape: func(s *site) {
			s.mine("three ordinals", 3, running)
			s.patch(setResource, s.scenario, `{"spec":{"replicas":1}}`)
			s.mine("the scale-down", 1, terminating)
		},
		pods: []expectation{
			returns(fate.StatefulSet).of("0"), lost(fate.OwnerScaledDown).of("1"),
			lost(fate.OwnerScaledDown).of("2").flagged(fate.Terminating),
		},
	},
	{
		name: "statefulset-with-finalizer", make: func(s *site) { s.create(s.statefulSet(1, finalized)) },
		pods: []expectation{expect(fate.Stranded, fate.BlockedByFinalizer, stuck).flagged(fate.HasFinalizer)},
	},
	{
		// Ordinal 1 comes back if it is deleted while ordinal 0 still counts as Ready: PodGC takes them in any order.
		name: "statefulset-behind-finalizer", make: func(s *site) { s.create(s.statefulSet(2)) },
		shape: func(s *site) {
			s.mine("both ordinals", 2, running)
			s.patch(podResource, s.scenario+"-0", fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, holdFinalizer))
		},
		pods: []expectation{
			expect(fate.Stranded, fate.BlockedByFinalizer, stuck).of("0"),
			returns(fate.StatefulSet).assumed().inFact(notRecreated).orElse(recreated).of("1"),
		},
	},
	{
		name: "statefulset-terminating", make: func(s *site) { s.create(s.statefulSet(1, slow)) },
		shape: func(s *site) {
			s.delete(podResource, s.scenario+"-0", metav1.DeletePropagationBackground)
			s.mine("the deletion", 1, terminating)
		},
		pods: []expectation{returns(fate.StatefulSet).flagged(fate.Terminating)},
	},
	{
		name: "statefulset-waits-for-ordinal", make: func(s *site) { s.create(s.statefulSet(2, gated)) }, shape: unreadyFirst,
		pods: []expectation{returns(fate.StatefulSet).of("0"), returns(fate.StatefulSet).assumed().inFact(notRecreated).of("1")},
	},
	{
		name: "statefulset-parallel",
		make: func(s *site) {
			set := s.statefulSet(2, gated)
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			s.create(set)
		},
		shape: unreadyFirst,
		pods:  []expectation{returns(fate.StatefulSet).times(2)},
	},
}

// gated pods are Ready when the test says so: the probes of these kubelets always succeed.
func gated(_ *metav1.ObjectMeta, p *corev1.PodSpec) {
	p.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
}

// unreadyFirst lets ordinal 0 be Ready until ordinal 1 runs.
func unreadyFirst(s *site) {
	s.open(s.scenario+"-0", corev1.ConditionTrue)
	s.mine("both ordinals", 2, running)
	s.open(s.scenario+"-0", corev1.ConditionFalse)
}

// open sets the gate of a pod and waits for the kubelet to make Ready follow.
func (s *site) open(name string, status corev1.ConditionStatus) {
	s.eventually("the gate of "+name, func() bool {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
		s.must(err)
		at, found := map[corev1.PodConditionType]corev1.ConditionStatus{}, false
		for i := range pod.Status.Conditions {
			c := &pod.Status.Conditions[i]
			if c.Type == gate {
				c.Status, found = status, true
			}
			at[c.Type] = c.Status
		}
		if !found {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: gate, Status: status})
		}
		_, err = s.client.CoreV1().Pods(s.namespace).UpdateStatus(s.Context(), pod, metav1.UpdateOptions{})
		return err == nil && at[corev1.PodReady] == status
	})
}

// stranded is a pod whose successor finds no place.
func stranded() expectation { return expect(fate.Stranded, fate.NoPlaceLeft, pending) }

// placeScenarios are rule 14.
var placeScenarios = []scenario{
	{name: "no-room", make: replicas(1, cores(smallNode+1)), pods: []expectation{stranded()}},
	{
		name: "only-this-machine", make: func(s *site) { s.create(s.replicaSet(1, onlyOn(s.going))) },
		pods: []expectation{stranded()},
	},
	{
		name: "only-this-zone",
		make: func(s *site) {
			s.create(s.replicaSet(1, spec(func(p *corev1.PodSpec) { p.Affinity = zoneAffinity(s.going) })))
		},
		pods: []expectation{stranded()},
	},
	{name: "local-volume", make: localVolume, pods: []expectation{stranded().flagged(fate.LocalVolume)}},
	{
		name: "host-port", make: replicas(1, hostPort),
		partner: func(s *site) { s.create(s.pod("-there", on(s.stays), hostPort)) },
		pods:    []expectation{stranded(), unharmed()},
	},
	{
		name:    "keeps-away-from-its-like",
		make:    replicas(1, spec(func(p *corev1.PodSpec) { p.Affinity = apart("keeps-away-from-its-like") })),
		partner: func(s *site) { s.create(s.pod("-there", on(s.stays))) },
		pods:    []expectation{stranded(), unharmed()},
	},
	{
		name: "spread-over-two-nodes", make: replicas(1, spread("spread-over-two-nodes")),
		partner: func(s *site) {
			s.patch(replicaSetResource, s.scenario, `{"spec":{"replicas":2}}`)
			s.mine("one on each node", 2, running)
		},
		pods: []expectation{stranded(), unharmed()},
	},
}

// freedScenarios are rule 14 where room on the healthy node is given up in the meantime.
var freedScenarios = []scenario{
	{
		name: "room-of-a-failing-job",
		make: func(s *site) {
			jobOf(backoff(0), work(2, 1), with(part("job"), cores(1)))(s)
			s.create(s.replicaSet(1, cores(smallNode)))
		},
		partner: widen,
		pods:    []expectation{givesUp.of("job"), costs(fate.JobWillNotRetry).of("job"), returns(fate.ReplicaSet)},
	},
	{
		name: "room-of-a-terminating-pod", make: replicas(1, memory("10Gi")),
		partner: func(s *site) {
			pod := s.pod("-there", on(s.stays), memory("10Gi"), stopsAfter(90*time.Second))
			s.create(pod)
			s.mine("a full node", 2, running)
			s.delete(podResource, pod.Name, metav1.DeletePropagationBackground)
			s.mine("the deletion", 1, terminating)
		},
		pods: []expectation{stranded().assumed().inFact(recreated), leaves()},
	},
}

func zoneAffinity(zone string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: in(zoneLabel, zone)}}
}

func in(label, value string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
	}}}
}

func apart(scenario string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{scenarioLabel: scenario}}, TopologyKey: corev1.LabelHostname,
	}}}}
}

func spread(scenario string) podMod {
	two := int32(2)
	return spec(func(p *corev1.PodSpec) {
		p.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, MinDomains: &two, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{scenarioLabel: scenario}},
		}}
	})
}

func hostPort(_ *metav1.ObjectMeta, p *corev1.PodSpec) {
	p.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
}

// localVolume makes a ReplicaSet with a volume on the disk of the machine that goes.
func localVolume(s *site) {
	none, volume := "", s.round+"-"+s.scenario
	room := corev1.ResourceList{corev1.ResourceStorage: gibibyte}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	s.create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		Capacity: room, AccessModes: modes,
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/"}},
		NodeAffinity:           &corev1.VolumeNodeAffinity{Required: in(corev1.LabelHostname, s.going)},
	}})
	s.create(&corev1.PersistentVolumeClaim{ObjectMeta: s.meta(""), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &none, VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: room},
	}})
	s.create(s.replicaSet(1, spec(func(p *corev1.PodSpec) {
		p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.scenario},
		}}}
	})))
}
