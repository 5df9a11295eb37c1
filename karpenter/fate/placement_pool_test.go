package fate

import (
	"testing"

	opstatus "github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

type poolMod = func(*karpv1.NodePool)

func nodePool(name string, mods ...poolMod) *karpv1.NodePool {
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	for _, mod := range mods {
		mod(np)
	}
	return np
}

// requiring adds "key Operator value,value" to the NodePool.
func requiring(s string) poolMod {
	return func(np *karpv1.NodePool) {
		e := expr(s).MatchExpressions[0]
		np.Spec.Template.Spec.Requirements = append(np.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: e.Key, Operator: e.Operator, Values: e.Values})
	}
}

func limited(limits, used string) poolMod {
	return func(np *karpv1.NodePool) {
		np.Spec.Limits = karpv1.Limits(amounts(limits))
		if used != "" {
			np.Status.Resources = amounts(used)
		}
	}
}

func templated(labels string) poolMod {
	return func(np *karpv1.NodePool) { np.Spec.Template.Labels = pairs(labels) }
}

func readiness(status metav1.ConditionStatus) poolMod {
	return func(np *karpv1.NodePool) {
		np.Status.Conditions = []opstatus.Condition{{Type: "Ready", Status: status, Message: "no node class"}}
	}
}

func TestPlaceNodePoolRequirements(t *testing.T) {
	n1 := readyNode("n1", "")
	zoneA := nodePool("np", requiring(zoneKey+" In a"))
	runPlacement(t, []placementRow{
		{name: "no NodePool", objects: []any{n1, p()}, want: NoPlace, why: "no NodePool"},
		{name: "a NodePool", objects: []any{n1, nodePool("np"), p()}, want: NeedsNode, why: "NodePool np"},
		{name: "a node that is there comes first", objects: []any{n1, readyNode("n2", ""), nodePool("np"), p()}, want: FitsNow},
		{name: "its own name", objects: []any{n1, nodePool("np"), p(selecting("karpenter.sh/nodepool=np"))}, want: NeedsNode},
		{name: "another's name", objects: []any{n1, nodePool("np"), p(selecting("karpenter.sh/nodepool=other"))}, want: NoPlace, why: "NodePool np: cannot have karpenter.sh/nodepool In [other]"},
		{name: "none of Karpenter's nodes", objects: []any{n1, nodePool("np"), p(affine(expr("karpenter.sh/nodepool DoesNotExist")))}, want: NoPlace},
		{name: "a zone it allows", objects: []any{n1, zoneA, p(selecting(zoneKey + "=a"))}, want: NeedsNode},
		{name: "a zone it does not", objects: []any{n1, zoneA, p(selecting(zoneKey + "=b"))}, want: NoPlace},
		{name: "any zone where it leaves that open", objects: []any{n1, nodePool("np"), p(selecting(zoneKey + "=z"))}, want: NeedsNode},
		{name: "the old zone label", objects: []any{n1, zoneA, p(selecting("failure-domain.beta.kubernetes.io/zone=b"))}, want: NoPlace},
		{name: "second term", objects: []any{n1, zoneA, p(affine(expr(zoneKey+" In b"), expr(zoneKey+" In a")))}, want: NeedsNode},
		{name: "selector and term contradict each other", objects: []any{n1, nodePool("np", requiring("rack Exists")), p(selecting("rack=1"), affine(expr("rack In 2")))}, want: NoPlace},
		{name: "a label it does not mention", objects: []any{n1, nodePool("np"), p(selecting("disk=ssd"))}, want: NoPlace, why: "cannot have disk In [ssd]"},
		{name: "a label of its template", objects: []any{n1, nodePool("np", templated("disk=ssd")), p(selecting("disk=ssd"))}, want: NeedsNode},
		{name: "a label it leaves open", objects: []any{n1, nodePool("np", requiring("disk Exists")), p(selecting("disk=ssd"))}, want: NeedsNode},
		{name: "not a label it does not mention", objects: []any{n1, nodePool("np"), p(affine(expr("disk NotIn ssd")))}, want: NeedsNode},
		{name: "a label of the provider", objects: []any{n1, nodePool("np"), p(selecting("karpenter.k8s.aws/instance-family=m7"))}, want: NeedsNode},
		{name: "a label of the provider that it restricts", objects: []any{n1, nodePool("np", requiring("karpenter.k8s.aws/instance-family In c7")), p(selecting("karpenter.k8s.aws/instance-family=m7"))}, want: NoPlace},
		{name: "a label of another provider", objects: []any{n1, nodePool("np"), p(selecting("karpenter.azure.com/sku-family=D"))}, want: NoPlace},
		{name: "capacity type", objects: []any{n1, nodePool("np", requiring("karpenter.sh/capacity-type In spot")), p(selecting("karpenter.sh/capacity-type=on-demand"))}, want: NoPlace},
		{name: "registered by the time it runs", objects: []any{n1, nodePool("np"), p(selecting("karpenter.sh/registered=true"))}, want: NeedsNode},
		{name: "the going node by hostname", objects: []any{n1, nodePool("np"), p(selecting(hostKey + "=n1"))}, want: NoPlace, why: "are going: n1, and no new node"},
		{name: "the going node by field", objects: []any{n1, nodePool("np"), p(affine(expr("metadata.name In n1")))}, want: NoPlace},
		{name: "not the going node by field", objects: []any{n1, nodePool("np"), p(affine(expr("metadata.name NotIn n1")))}, want: NeedsNode},
		{name: "any hostname", objects: []any{n1, nodePool("np"), p(affine(expr(hostKey + " Exists")))}, want: NeedsNode},
		{name: "a requirement that cannot be read", objects: []any{n1, nodePool("np", requiring("cores Gt")), p()}, want: NoPlace, why: "cannot be read"},
		{name: "a term that cannot be read", objects: []any{n1, nodePool("np"), p(affine(expr("cores Gt many")))}, want: NoPlace},
		{name: "minValues", objects: []any{n1, nodePool("np", requiring("karpenter.k8s.aws/instance-family In c7,m7"), func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.Requirements[0].MinValues = ptr(2)
		}), p(selecting("karpenter.k8s.aws/instance-family=m7"))}, want: NoPlace, why: "needs 2 values"},
		{name: "no node class named", objects: []any{n1, nodePool("np", func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef = nil }), p()}, want: NeedsNode},
	})
}

func TestPlaceNodePoolState(t *testing.T) {
	n1 := readyNode("n1", "", bearing("karpenter.sh/nodepool=np"))
	taint := func(startup bool) poolMod {
		return func(np *karpv1.NodePool) {
			taints := []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
			if startup {
				np.Spec.Template.Spec.StartupTaints = taints
			} else {
				np.Spec.Template.Spec.Taints = taints
			}
		}
	}
	replicas := func(n int64) poolMod { return func(np *karpv1.NodePool) { np.Spec.Replicas = &n } }
	runPlacement(t, []placementRow{
		{name: "taint", objects: []any{n1, nodePool("np", taint(false)), p()}, want: NoPlace, why: "NodePool np: has taint dedicated:NoSchedule"},
		{name: "taint tolerated", objects: []any{n1, nodePool("np", taint(false)), p(tolerating(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}))}, want: NeedsNode},
		{name: "startup taint", objects: []any{n1, nodePool("np", taint(true)), p()}, want: NeedsNode},
		{name: "Ready", objects: []any{n1, nodePool("np", readiness(metav1.ConditionTrue)), p()}, want: NeedsNode},
		{name: "not Ready", objects: []any{n1, nodePool("np", readiness(metav1.ConditionFalse)), p()}, want: NoPlace, why: "NodePool np: is not Ready: no node class"},
		{name: "being deleted", objects: []any{n1, nodePool("np", func(np *karpv1.NodePool) { np.DeletionTimestamp = &metav1.Time{Time: now} }), p()}, want: NoPlace, why: "is being deleted"},
		{name: "limit left", objects: []any{n1, nodePool("np", limited("cpu=10", "cpu=8")), p(asking("cpu=2"))}, want: NeedsNode},
		{name: "limit too small", objects: []any{n1, nodePool("np", limited("cpu=10", "cpu=9")), p(asking("cpu=2"))}, want: NoPlace, why: "has 1 cpu left of its limit 10"},
		{name: "limit used up, pod without requests", objects: []any{n1, nodePool("np", limited("cpu=8", "cpu=8")), p()}, want: NoPlace},
		{name: "limit of nodes", objects: []any{n1, nodePool("np", limited("nodes=1", "nodes=1")), p()}, want: NoPlace, why: "has reached its limit of nodes"},
		{name: "no devices, none asked for", objects: []any{n1, nodePool("np", limited("example.com/gpu=0", "")), p()}, want: NeedsNode},
		{name: "no devices, one asked for", objects: []any{n1, nodePool("np", limited("example.com/gpu=0", "")), p(asking("example.com/gpu=1"))}, want: NoPlace},
		{name: "usage from its Nodes where the status has none", objects: []any{n1, nodePool("np", limited("cpu=5", "")), p(asking("cpu=2"))}, want: NoPlace, why: "has 1 cpu left"},
		{name: "second NodePool", objects: []any{n1, nodePool("a", limited("cpu=0", "")), nodePool("b"), p(asking("cpu=1"))}, want: NeedsNode, why: "NodePool b"},
		{name: "the heavier one is asked first", objects: []any{n1, nodePool("a"), nodePool("b", func(np *karpv1.NodePool) { np.Spec.Weight = ptr[int32](10) }), p()}, want: NeedsNode, why: "NodePool b"},
		{name: "instance size bounded", objects: []any{n1, nodePool("np", requiring("karpenter.k8s.aws/instance-cpu Lt 9")), p(asking("cpu=9"))}, want: NoPlace, why: "has nodes of at most 8 cpu"},
		{name: "instance size sufficient", objects: []any{n1, nodePool("np", requiring("karpenter.k8s.aws/instance-cpu In 4,16")), p(asking("cpu=9"))}, want: NeedsNode},
		{name: "instance memory bounded", objects: []any{n1, nodePool("np", requiring("karpenter.azure.com/sku-memory Lt 4097")), p(asking("memory=5Gi"))}, want: NoPlace},
		{name: "a fixed number replaces the going node", objects: []any{n1, nodePool("np", replicas(1)), p(asking("cpu=4"))}, want: NeedsNode},
		{name: "by no larger one", objects: []any{readyNode("n1", "cpu=3", bearing("karpenter.sh/nodepool=np")), nodePool("np", replicas(1)), p(asking("cpu=4"))}, want: NoPlace, why: "at most 3 cpu"},
		{name: "not beyond the number", objects: []any{n1, readyNode("n2", "cpu=0", bearing("karpenter.sh/nodepool=np")), nodePool("np", replicas(1)), p(asking("cpu=1"))}, want: NoPlace, why: "keeps a fixed number of nodes (replicas 1)"},
	})
}

func TestPlaceNodePoolNeighbours(t *testing.T) {
	web, db := labelled("app=web"), labelled("app=db")
	a, b := readyNode("n2", "pods=1", inZone("a")), readyNode("n3", "pods=1", inZone("b"))
	inA, inB := pod("x", "n2", db), pod("y", "n3", db)
	both := func(objects ...any) []any { return append([]any{readyNode("n1", ""), a, b, inA, inB}, objects...) }
	port := func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
	}
	runPlacement(t, []placementRow{
		{name: "apart by host: a new node is empty", objects: both(nodePool("np"), p(apart(hostKey, "app=db"))), want: NeedsNode},
		{name: "apart by zone: another zone", objects: both(nodePool("np"), p(apart(zoneKey, "app=db"))), want: NeedsNode},
		{name: "apart by zone: none but the taken ones", objects: both(nodePool("np", requiring(zoneKey+" In a,b")), p(apart(zoneKey, "app=db"))), want: NoPlace, why: "must not be beside"},
		{name: "apart by zone: one is free", objects: both(nodePool("np", requiring(zoneKey+" In a,b,c")), p(apart(zoneKey, "app=db"))), want: NeedsNode},
		{name: "apart by zone: not the excluded ones", objects: both(nodePool("np", requiring(zoneKey+" NotIn c")), p(apart(zoneKey, "app=db"))), want: NeedsNode},
		{name: "refused in its zones", objects: []any{readyNode("n1", ""), a, pod("x", "n2", apart(zoneKey, "app=web")), nodePool("np", requiring(zoneKey+" In a")), p(web)}, want: NoPlace, why: "pod ns/x refuses it"},
		{name: "beside a pod of the zone", objects: both(nodePool("np"), p(near(zoneKey, "app=db"))), want: NeedsNode},
		{name: "beside a pod of a zone that it cannot have", objects: both(nodePool("np", requiring(zoneKey+" In c")), p(near(zoneKey, "app=db"))), want: NoPlace, why: "needs pods beside it"},
		{name: "beside a pod of a full host", objects: both(nodePool("np"), p(near(hostKey, "app=db"))), want: NoPlace},
		{name: "beside one that gets a new node", objects: []any{readyNode("n1", ""), nodePool("np"), pod("c", "n1", db, priority(1)), p(near(hostKey, "app=db"))}, want: NeedsNode},
		{name: "apart from one that gets the last new node", objects: []any{readyNode("n1", ""), nodePool("np", limited("nodes=2", "nodes=1")), pod("c", "n1", db, priority(1)), p(apart(hostKey, "app=db"))}, want: NoPlace},
		{name: "with one that gets the last new node", objects: []any{readyNode("n1", ""), nodePool("np", limited("nodes=2", "nodes=1")), pod("c", "n1", db, priority(1)), p()}, want: NeedsNode},
		{name: "host port of one that gets the last new node", objects: []any{readyNode("n1", ""), nodePool("np", limited("nodes=2", "nodes=1")), pod("c", "n1", port, priority(1)), p(port)}, want: NoPlace},
		{name: "another zone than the last new node's", objects: []any{readyNode("n1", ""), nodePool("np", limited("nodes=2", "nodes=1")), pod("c", "n1", priority(1), selecting(zoneKey+"=a")), p(selecting(zoneKey + "=b"))}, want: NoPlace},
		{name: "spread into a new zone", objects: both(nodePool("np"), p(db, spreading(zoneKey, 1, func(c *corev1.TopologySpreadConstraint) {
			c.LabelSelector.MatchLabels = pairs("app=db")
		}))), want: NeedsNode},
		{name: "spread would pile up", objects: []any{readyNode("n1", ""), a, readyNode("n3", "pods=0", inZone("b")), pod("w", "n2", web), nodePool("np", requiring(zoneKey+" In a")), p(web, spreading(zoneKey, 1))}, want: NoPlace, why: "topology spread"},
		{name: "spread by host on a new node", objects: []any{readyNode("n1", ""), a, pod("w", "n2", web), nodePool("np"), p(web, spreading(hostKey, 1))}, want: NeedsNode},
		{name: "limits are shared", objects: []any{readyNode("n1", ""), nodePool("np", limited("cpu=3", "cpu=0")), pod("c", "n1", asking("cpu=2"), priority(1)), p(asking("cpu=2"))}, want: NoPlace, why: "has 1 cpu left"},
		{name: "sizes are shared", objects: []any{readyNode("n1", ""), nodePool("np", requiring("karpenter.k8s.aws/instance-cpu Lt 4"), limited("nodes=1", "nodes=0")), pod("c", "n1", asking("cpu=2"), priority(1)), p(asking("cpu=2"))}, want: NoPlace},
	})
}

func TestPlaceNodePoolVolumes(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("data")}
	claim.Spec.VolumeName = "pv"
	mounting := func(p *corev1.Pod) {
		v := corev1.Volume{Name: "data"}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
		p.Spec.Volumes = []corev1.Volume{v}
	}
	volume := func(terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
		return v
	}
	n1, zones := readyNode("n1", "", inZone("a")), requiring(zoneKey+" In a,b")
	runPlacement(t, []placementRow{
		{name: "its zone", objects: []any{n1, nodePool("np", zones), claim, volume(expr(zoneKey + " In b")), p(mounting)}, want: NeedsNode},
		{name: "not its zone", objects: []any{n1, nodePool("np", zones), claim, volume(expr(zoneKey + " In c")), p(mounting)}, want: NoPlace, why: "NodePool np: cannot have"},
		{name: "a driver's word for its zone", objects: []any{n1, nodePool("np", zones), claim, volume(expr("topology.ebs.csi.aws.com/zone In b")), p(mounting)}, want: NeedsNode},
		{name: "a driver's word for another zone", objects: []any{n1, nodePool("np", zones), claim, volume(expr("topology.ebs.csi.aws.com/zone In c")), p(mounting)}, want: NoPlace},
		{name: "one of two terms", objects: []any{n1, nodePool("np", zones), claim, volume(expr(zoneKey+" In c"), expr(zoneKey+" In b")), p(mounting)}, want: NeedsNode},
		{name: "volume and selector contradict each other", objects: []any{n1, nodePool("np", zones), claim, volume(expr(zoneKey + " In b")), p(mounting, selecting(zoneKey+"=a"))}, want: NoPlace},
		{name: "pinned to a host", objects: []any{n1, nodePool("np"), claim, volume(expr(hostKey + " In n1")), p(mounting)}, want: NoPlace},
		{name: "pinned to a host, growth or not", objects: []any{n1, claim, volume(expr(hostKey + " In n1")), p(mounting)}, o: Options{AssumeGrowth: true}, want: NoPlace},
	})
}

func TestPlaceGrowth(t *testing.T) {
	grow := Options{AssumeGrowth: true}
	going := tainted("ToBeDeletedByClusterAutoscaler", "1", corev1.TaintEffectNoSchedule)
	agent := pod("agent", "n2", asking("cpu=1"), by("apps/DaemonSet agent"))
	runPlacement(t, []placementRow{
		{name: "off", objects: []any{readyNode("n1", ""), readyNode("n2", "cpu=1"), p(asking("cpu=3"))}, want: NoPlace},
		{name: "a copy of its own node", objects: []any{readyNode("n1", "", going), readyNode("n2", "cpu=1"), p(asking("cpu=3"))}, o: grow, want: NeedsNode, why: "another node like n1"},
		{name: "room that is there comes first", objects: []any{readyNode("n1", ""), readyNode("n2", ""), p(asking("cpu=3"))}, o: grow, want: FitsNow},
		{name: "a copy of another node", objects: []any{readyNode("n1", "cpu=1"), readyNode("n2", "", bearing("disk=ssd")), pod("q", "n2", asking("cpu=4")), p(asking("cpu=3"), selecting("disk=ssd"))}, o: grow, want: NeedsNode, why: "like n2"},
		{name: "no copy is large enough", objects: []any{readyNode("n1", ""), readyNode("n2", ""), p(asking("cpu=5"))}, o: grow, want: NoPlace, why: "another node like n1: has nodes of at most 4 cpu"},
		{name: "a copy runs its DaemonSet pods", objects: []any{readyNode("n1", "cpu=1"), readyNode("n2", ""), agent, pod("q", "n2", asking("cpu=3")), p(asking("cpu=4"))}, o: grow, want: NoPlace},
		{name: "a copy has another hostname", objects: []any{readyNode("n1", ""), p(selecting(hostKey + "=n1"))}, o: grow, want: NoPlace},
		{name: "a copy bears lasting taints", objects: []any{readyNode("n1", "cpu=1"), readyNode("n2", "pods=1", tainted("x", "", corev1.TaintEffectNoSchedule)), p(asking("cpu=2"))}, o: grow, want: NoPlace},
		{name: "NodePools come first", objects: []any{readyNode("n1", ""), nodePool("np"), p()}, o: grow, want: NeedsNode, why: "NodePool np"},
	})
}
