package fate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// terrain is a World for placement: the cluster of the verdicts, NodePools and Namespaces.
type terrain struct {
	*cluster
	pools      []*karpv1.NodePool
	namespaces map[string]*corev1.Namespace
}

func newTerrain(objects ...any) *terrain {
	w := &terrain{cluster: newCluster(objects...), namespaces: map[string]*corev1.Namespace{}}
	for _, o := range objects {
		switch o := o.(type) {
		case *karpv1.NodePool:
			w.pools = append(w.pools, o)
		case *corev1.Namespace:
			w.namespaces[o.Name] = o
		}
	}
	return w
}

func (w *terrain) NodePools() []*karpv1.NodePool           { return w.pools }
func (w *terrain) Namespace(name string) *corev1.Namespace { return w.namespaces[name] }

// seats places every unfinished pod of the going nodes and answers by pod name.
func (w *terrain) seats(o Options, going ...string) map[string]seat {
	gone := map[string]bool{}
	var pods []*corev1.Pod
	for _, n := range going {
		gone[n] = true
		for _, p := range w.PodsOn(n) {
			if !finished(p) {
				pods = append(pods, p)
			}
		}
	}
	byKey := place(w, gone, pods, o)
	byName := map[string]seat{}
	for _, p := range pods {
		byName[p.Name] = byKey[nameOf(p)]
	}
	return byName
}

// amounts reads "cpu=2 memory=4Gi".
func amounts(s string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, f := range strings.Fields(s) {
		name, v, _ := strings.Cut(f, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(v)
	}
	return list
}

// pairs reads "a=b c=d".
func pairs(s string) map[string]string {
	m := map[string]string{}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		m[k] = v
	}
	return m
}

// ready is a Ready node with 4 cpu, 16Gi and 10 pod slots unless allocatable says otherwise.
func readyNode(name, allocatable string, mods ...func(*corev1.Node)) *corev1.Node {
	n := node(name)
	n.Status.Allocatable = amounts("cpu=4 memory=16Gi ephemeral-storage=80Gi pods=10 " + allocatable)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, mod := range mods {
		mod(n)
	}
	return n
}

func bearing(labels string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for k, v := range pairs(labels) {
			n.Labels[k] = v
		}
	}
}

func tainted(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func asking(requests string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: amounts(requests)},
		})
	}
}

func initially(requests string, sidecar bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: "init", Resources: corev1.ResourceRequirements{Requests: amounts(requests)}}
		if sidecar {
			c.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func labelled(s string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels = pairs(s) } }

func priority(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }

func inNamespace(namespace string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

func selecting(s string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = pairs(s) }
}

func tolerating(t ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = t }
}

// affine gives the pod a required node affinity of the given alternatives.
func affine(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}
	}
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

// expr is one "key Operator value,value" of a term.
func expr(s string) corev1.NodeSelectorTerm {
	f := strings.Fields(s)
	e := corev1.NodeSelectorRequirement{Key: f[0], Operator: corev1.NodeSelectorOperator(f[1])}
	if len(f) > 2 {
		e.Values = strings.Split(f[2], ",")
	}
	if e.Key == metav1.ObjectNameField {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{e}}
	}
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{e}}
}

// and joins terms into one that wants all of them.
func and(terms ...corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
	var all corev1.NodeSelectorTerm
	for _, t := range terms {
		all.MatchExpressions = append(all.MatchExpressions, t.MatchExpressions...)
		all.MatchFields = append(all.MatchFields, t.MatchFields...)
	}
	return all
}

// placementRow is a question about pod "p" of the going node n1.
type placementRow struct {
	name    string
	objects []any
	o       Options
	want    Placement
	why     string // a part of the answer
}

func runPlacement(t *testing.T, rows []placementRow) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newTerrain(r.objects...)
			got, ok := w.seats(r.o, "n1")["p"]
			if !ok {
				t.Fatal("pod p has no seat")
			}
			if got.placement != r.want || !strings.Contains(got.why, r.why) {
				t.Errorf("got %s, %q; want %s, …%s…", got.placement, got.why, r.want, r.why)
			}
		})
	}
}

// p is the pod asked about.
func p(mods ...func(*corev1.Pod)) *corev1.Pod { return pod("p", "n1", mods...) }

func TestPlaceNodes(t *testing.T) {
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
	silent := func(n *corev1.Node) { n.Status.Conditions = nil }
	runPlacement(t, []placementRow{
		{name: "a Ready node", objects: []any{node("n1"), readyNode("n2", ""), p()}, want: FitsNow, why: "n2"},
		{name: "only itself", objects: []any{readyNode("n1", ""), p()}, want: NoPlace, why: "1 going"},
		{name: "cordoned, even if tolerated", objects: []any{node("n1"), readyNode("n2", "", cordoned),
			p(tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}))}, want: NoPlace, why: "1 cordoned"},
		{name: "not Ready", objects: []any{node("n1"), readyNode("n2", "", notReady), p()}, want: NoPlace, why: "1 not Ready"},
		{name: "never reported", objects: []any{node("n1"), readyNode("n2", "", silent), p()}, want: NoPlace, why: "1 not Ready"},
		{name: "no nodes at all", objects: []any{p()}, want: NoPlace, why: "no other node"},
		{name: "no hostname label", objects: []any{node("n1"), readyNode("n2", "", func(n *corev1.Node) { n.Labels = nil }),
			p(selecting("kubernetes.io/hostname=n2"))}, want: FitsNow},
		{name: "a tolerating pod that selects the going node", objects: []any{node("n1"), readyNode("n2", ""),
			p(selecting("kubernetes.io/hostname=n1"))}, want: NoPlace, why: "are going: n1"},
		{name: "what it selects is cordoned", objects: []any{node("n1"), readyNode("n2", "", cordoned, bearing("disk=ssd")), readyNode("n3", ""),
			p(selecting("disk=ssd"))}, want: NoPlace, why: "cordoned: n2"},
		{name: "nothing that it selects", objects: []any{node("n1"), readyNode("n2", ""), p(selecting("disk=ssd"))},
			want: NoPlace, why: "no node matches its node selector disk=ssd"},
	})
}

func TestPlaceRoom(t *testing.T) {
	runPlacement(t, []placementRow{
		{name: "cpu fits exactly", objects: []any{node("n1"), readyNode("n2", "cpu=2"), p(asking("cpu=2"))}, want: FitsNow},
		{name: "cpu", objects: []any{node("n1"), readyNode("n2", "cpu=1500m"), readyNode("n3", "cpu=1"), p(asking("cpu=4"))},
			want: NoPlace, why: "needs 4 cpu; most free on a Ready node is 1500m (n2), no NodePool"},
		{name: "memory", objects: []any{node("n1"), readyNode("n2", "memory=1Gi"), p(asking("memory=2Gi"))}, want: NoPlace, why: "needs 2Gi memory"},
		{name: "ephemeral storage", objects: []any{node("n1"), readyNode("n2", ""), p(asking("ephemeral-storage=81Gi"))},
			want: NoPlace, why: "needs 81Gi ephemeral-storage"},
		{name: "a device", objects: []any{node("n1"), readyNode("n2", "example.com/gpu=1"), p(asking("example.com/gpu=1"))}, want: FitsNow},
		{name: "no device", objects: []any{node("n1"), readyNode("n2", ""), p(asking("example.com/gpu=1"))}, want: NoPlace, why: "example.com/gpu"},
		{name: "pod slots", objects: []any{node("n1"), readyNode("n2", "pods=1"), pod("there", "n2"), p()}, want: NoPlace, why: "no pod slot is left on n2"},
		{name: "no number of pods given", objects: []any{node("n1"), readyNode("n2", "", func(n *corev1.Node) {
			delete(n.Status.Allocatable, corev1.ResourcePods)
		}), p(asking("cpu=1"))}, want: FitsNow},
		{name: "no requests on an overcommitted node", objects: []any{node("n1"), readyNode("n2", "cpu=1"), pod("there", "n2", asking("cpu=3")), p()}, want: FitsNow},
		{name: "held by a running pod", objects: []any{node("n1"), readyNode("n2", ""), pod("there", "n2", asking("cpu=3")), p(asking("cpu=2"))},
			want: NoPlace, why: "most free on a Ready node is 1 (n2)"},
		{name: "held by a Terminating pod", objects: []any{node("n1"), readyNode("n2", ""), pod("there", "n2", asking("cpu=3"), terminating), p(asking("cpu=2"))}, want: NoPlace},
		{name: "not held by a finished pod", objects: []any{node("n1"), readyNode("n2", ""), pod("there", "n2", asking("cpu=3"), phase(corev1.PodFailed)), p(asking("cpu=2"))}, want: FitsNow},
		{name: "a short init container shares", objects: []any{node("n1"), readyNode("n2", ""), p(asking("cpu=3"), initially("cpu=4", false))}, want: FitsNow},
		{name: "a large init container", objects: []any{node("n1"), readyNode("n2", ""), p(asking("cpu=1"), initially("cpu=5", false))}, want: NoPlace, why: "needs 5 cpu"},
		{name: "a sidecar adds", objects: []any{node("n1"), readyNode("n2", ""), p(asking("cpu=3"), initially("cpu=2", true))}, want: NoPlace, why: "needs 5 cpu"},
		{name: "overhead adds", objects: []any{node("n1"), readyNode("n2", ""), p(asking("cpu=4"), func(p *corev1.Pod) {
			p.Spec.Overhead = amounts("cpu=1m")
		})}, want: NoPlace, why: "needs 4001m cpu"},
		{name: "pod-level requests decide", objects: []any{node("n1"), readyNode("n2", ""), p(asking("cpu=1"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=5")}
		})}, want: NoPlace, why: "needs 5 cpu"},
		{name: "a neighbour resized in place", objects: []any{node("n1"), readyNode("n2", ""), pod("there", "n2", asking("cpu=1"), func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: amounts("cpu=3")}}
		}), p(asking("cpu=2"))}, want: NoPlace},
		{name: "nodes that lack different things", objects: []any{node("n1"), readyNode("n2", "cpu=1"), readyNode("n3", "memory=1Gi"), p(asking("cpu=2 memory=2Gi"))},
			want: NoPlace, why: "1 lacks cpu, 1 lacks memory"},
		{name: "capacity where nothing is allocatable yet", objects: []any{node("n1"), readyNode("n2", "", func(n *corev1.Node) {
			n.Status.Capacity, n.Status.Allocatable = n.Status.Allocatable, nil
		}), p(asking("cpu=4"))}, want: FitsNow},
	})
}

func TestPlaceSelection(t *testing.T) {
	ssd, zoneA := bearing("disk=ssd"), bearing("topology.kubernetes.io/zone=a")
	dedicated := tainted("dedicated", "batch", corev1.TaintEffectNoSchedule)
	runPlacement(t, []placementRow{
		{name: "second term of an affinity", objects: []any{node("n1"), readyNode("n2", "", ssd), p(affine(expr("disk In hdd"), expr("disk In ssd")))}, want: FitsNow},
		{name: "half a term", objects: []any{node("n1"), readyNode("n2", "", ssd), p(affine(and(expr("disk In ssd"), expr("gpu Exists"))))}, want: NoPlace, why: "its node affinity"},
		{name: "selector and affinity", objects: []any{node("n1"), readyNode("n2", "", ssd), p(selecting("topology.kubernetes.io/zone=a"), affine(expr("disk In ssd")))}, want: NoPlace},
		{name: "both met", objects: []any{node("n1"), readyNode("n2", "", ssd, zoneA), p(selecting("topology.kubernetes.io/zone=a"), affine(expr("disk In ssd")))}, want: FitsNow},
		{name: "a field names the other node", objects: []any{node("n1"), readyNode("n2", ""), p(affine(expr("metadata.name In n2")))}, want: FitsNow},
		{name: "a field names the going node", objects: []any{node("n1"), readyNode("n2", ""), p(affine(expr("metadata.name In n1")))}, want: NoPlace, why: "are going: n1"},
		{name: "numbers", objects: []any{node("n1"), readyNode("n2", "", bearing("cores=8")), p(affine(expr("cores Gt 4")))}, want: FitsNow},
		{name: "an empty term selects nothing", objects: []any{node("n1"), readyNode("n2", ""), p(affine(corev1.NodeSelectorTerm{}))}, want: NoPlace},
		{name: "taint", objects: []any{node("n1"), readyNode("n2", "", dedicated), p()}, want: NoPlace, why: "does not tolerate taint dedicated=batch:NoSchedule of n2"},
		{name: "taint tolerated", objects: []any{node("n1"), readyNode("n2", "", dedicated), p(tolerating(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}))}, want: FitsNow},
		{name: "NoExecute taint", objects: []any{node("n1"), readyNode("n2", "", tainted("x", "", corev1.TaintEffectNoExecute)), p()}, want: NoPlace},
		{name: "PreferNoSchedule keeps nobody away", objects: []any{node("n1"), readyNode("n2", "", tainted("x", "", corev1.TaintEffectPreferNoSchedule)), p()}, want: FitsNow},
		{name: "different obstacles are counted", objects: []any{node("n1"), readyNode("n2", "", dedicated), readyNode("n3", "cpu=1"), readyNode("n4", "", cordoned), p(asking("cpu=2"))},
			want: NoPlace, why: "0 of 4 nodes: 1 going, 1 cordoned, 1 with a taint it does not tolerate, 1 lacks cpu"},
	})
}

func TestPlacePorts(t *testing.T) {
	port := func(n int32, ip string, protocol corev1.Protocol) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{HostPort: n, HostIP: ip, Protocol: protocol, ContainerPort: n}}})
		}
	}
	inInit := func(sidecar bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			initially("", sidecar)(p)
			p.Spec.InitContainers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}
	}
	hostNetwork := func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
	}
	there := pod("there", "n2", port(80, "", ""))
	local := pod("there", "n2", port(80, "127.0.0.1", corev1.ProtocolTCP))
	runPlacement(t, []placementRow{
		{name: "taken", objects: []any{node("n1"), readyNode("n2", ""), there, p(port(80, "", corev1.ProtocolTCP))}, want: NoPlace, why: "host port 80/TCP is taken on n2 by ns/there"},
		{name: "another port", objects: []any{node("n1"), readyNode("n2", ""), there, p(port(81, "", ""))}, want: FitsNow},
		{name: "another protocol", objects: []any{node("n1"), readyNode("n2", ""), there, p(port(80, "", corev1.ProtocolUDP))}, want: FitsNow},
		{name: "another address", objects: []any{node("n1"), readyNode("n2", ""), local, p(port(80, "10.0.0.1", ""))}, want: FitsNow},
		{name: "all addresses against one", objects: []any{node("n1"), readyNode("n2", ""), local, p(port(80, "0.0.0.0", ""))}, want: NoPlace},
		{name: "of a sidecar", objects: []any{node("n1"), readyNode("n2", ""), there, p(inInit(true))}, want: NoPlace},
		{name: "not of an init container that ends", objects: []any{node("n1"), readyNode("n2", ""), there, p(inInit(false))}, want: FitsNow},
		{name: "of the host network", objects: []any{node("n1"), readyNode("n2", ""), there, p(hostNetwork)}, want: NoPlace},
		{name: "free on a third node", objects: []any{node("n1"), readyNode("n2", ""), readyNode("n3", ""), there, p(port(80, "", ""))}, want: FitsNow, why: "n3"},
	})
}

func TestPlaceOrder(t *testing.T) {
	for _, r := range []struct {
		name    string
		objects []any
		going   []string
		fit     string // the pods that find room, the rest find none
	}{
		{"priority before size", []any{node("n1"), readyNode("n2", "cpu=2"), pod("big", "n1", asking("cpu=2")), pod("urgent", "n1", asking("cpu=1"), priority(10))}, []string{"n1"}, "urgent"},
		{"the larger first", []any{node("n1"), readyNode("n2", "cpu=2"), pod("a", "n1", asking("cpu=1")), pod("b", "n1", asking("cpu=2"))}, []string{"n1"}, "b"},
		{"large by its share of anything", []any{node("n1"), readyNode("n2", "cpu=4 memory=4Gi"), pod("a", "n1", asking("cpu=2 memory=1Gi")), pod("b", "n1", asking("cpu=1 memory=4Gi"))}, []string{"n1"}, "b"},
		{"then by name", []any{node("n1"), readyNode("n2", "cpu=1"), pod("b", "n1", asking("cpu=1")), pod("a", "n1", asking("cpu=1"))}, []string{"n1"}, "a"},
		{"nodes that go together compete", []any{node("n1"), node("n2"), readyNode("n3", "cpu=1"), pod("a", "n1", asking("cpu=1")), pod("b", "n2", asking("cpu=1"))}, []string{"n1", "n2"}, "a"},
		{"the tightest node is taken", []any{node("n1"), readyNode("n2", "cpu=4"), readyNode("n3", "cpu=2"), pod("a", "n1", asking("cpu=2"), priority(1)), pod("b", "n1", asking("cpu=4"))}, []string{"n1"}, "a b"},
		{"pod slots are taken", []any{node("n1"), readyNode("n2", "pods=1"), pod("a", "n1"), pod("b", "n1")}, []string{"n1"}, "a"},
		{"devices are taken", []any{node("n1"), readyNode("n2", "x.io/d=1"), pod("a", "n1", asking("x.io/d=1")), pod("b", "n1", asking("x.io/d=1"))}, []string{"n1"}, "a"},
	} {
		t.Run(r.name, func(t *testing.T) {
			var fit []string
			seats := newTerrain(r.objects...).seats(Options{}, r.going...)
			for _, name := range sortedKeys(seats) {
				if seats[name].placement == FitsNow {
					fit = append(fit, name)
				} else if seats[name].placement != NoPlace {
					t.Errorf("%s: %s", name, seats[name].placement)
				}
			}
			if got := strings.Join(fit, " "); got != r.fit {
				t.Errorf("room for %q, want %q", got, r.fit)
			}
		})
	}
}

// One placer serves many sets of going nodes and is not changed by any of them.
func TestPlaceAgain(t *testing.T) {
	a, b := pod("a", "n1", asking("cpu=2 x.io/d=1")), pod("b", "n2", asking("cpu=2 x.io/d=1"))
	w := newTerrain(readyNode("n1", "x.io/d=1"), readyNode("n2", "x.io/d=1"), readyNode("n3", "cpu=2 x.io/d=1"), a, b)
	shared := newPlacer(w, Options{})
	for range 2 {
		for _, q := range []struct {
			pod  *corev1.Pod
			node string
		}{{a, "n1"}, {b, "n2"}} {
			got := shared.place(map[string]bool{q.node: true}, []*corev1.Pod{q.pod}, nil)
			if s := got[nameOf(q.pod)]; s.placement != FitsNow || s.why != "fits on n3" {
				t.Errorf("%s: %v", q.pod.Name, s)
			}
		}
	}
	if len(place(w, nil, nil, Options{})) != 0 {
		t.Error("a seat for nobody")
	}
}

// A pod to be placed that still runs on a node that stays holds nothing there.
func TestPlaceMovesFromStayingNode(t *testing.T) {
	moving := pod("p", "n2", asking("cpu=3"))
	w := newTerrain(readyNode("n2", "cpu=4"), moving)
	if s := place(w, nil, []*corev1.Pod{moving}, Options{})[nameOf(moving)]; s.placement != FitsNow {
		t.Error(s)
	}
}
