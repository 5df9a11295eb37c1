package fate

import (
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// A pool is what a NodePool can launch. Instance types are the cloud provider's and unknown here: any size and any
// combination of what its requirements leave open is taken as launchable, within the limits.
type pool struct {
	requirements scheduling.Requirements
	provider     string                        // the provider's label domain: the group of its node class
	limits       map[corev1.ResourceName]int64 // as in the NodePool, in room's units
	left         map[corev1.ResourceName]int64
}

// poolLaunchers reads the NodePools, by weight, then name, as Karpenter orders them.
func (s *simulation) poolLaunchers() []*launcher {
	nodePools := slices.Clone(s.world.NodePools())
	sort.Slice(nodePools, func(i, j int) bool {
		a, b := weight(nodePools[i]), weight(nodePools[j])
		if a != b {
			return a > b
		}
		return nodePools[i].Name < nodePools[j].Name
	})
	var launchers []*launcher
	for _, np := range nodePools {
		launchers = append(launchers, s.poolLauncher(np))
	}
	return launchers
}

func weight(np *karpv1.NodePool) int32 {
	if np.Spec.Weight == nil {
		return 0
	}
	return *np.Spec.Weight
}

func (s *simulation) poolLauncher(np *karpv1.NodePool) *launcher {
	l := &launcher{name: "NodePool " + np.Name, nodes: manyNodes, size: sizeOf(np), pool: &pool{}}
	// Startup taints go away by themselves and need no toleration.
	l.taints = np.Spec.Template.Spec.Taints
	l.closed = notLaunching(np)
	var why string
	if l.pool.requirements, why = templateRequirements(np); why != "" {
		l.closed = why
	}
	if ref := np.Spec.Template.Spec.NodeClassRef; ref != nil {
		l.pool.provider = ref.Group
	}
	s.readLimits(np, l)
	if np.Spec.Replicas != nil {
		s.keepReplicas(np, l)
	}
	return l
}

// notLaunching says why the NodePool launches nothing at the moment (Karpenter, Provisioner.NewScheduler). A NodePool
// without a Ready condition (trimmed input) is taken as Ready.
func notLaunching(np *karpv1.NodePool) string {
	if np.DeletionTimestamp != nil {
		return "is being deleted"
	}
	for i := range np.Status.Conditions {
		if c := &np.Status.Conditions[i]; c.Type == "Ready" && c.Status != "True" {
			if c.Message != "" {
				return "is not Ready: " + c.Message
			}
			return "is not Ready"
		}
	}
	return ""
}

// templateRequirements are those of Karpenter's NewNodeClaimTemplate, and that a new node has a value for each label that
// every instance has.
func templateRequirements(np *karpv1.NodePool) (scheduling.Requirements, string) {
	t := np.Spec.Template
	r := scheduling.NewRequirements(
		scheduling.NewRequirement(karpv1.NodeRegisteredLabelKey, corev1.NodeSelectorOpIn, "true"),
		scheduling.NewRequirement(karpv1.NodeInitializedLabelKey, corev1.NodeSelectorOpIn, "true"),
		scheduling.NewRequirement(karpv1.NodePoolLabelKey, corev1.NodeSelectorOpIn, np.Name),
		scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn,
			sets.List(karpv1.WellKnownValuesForRequirements[karpv1.CapacityTypeLabelKey])...),
	)
	for _, key := range []string{
		corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable, corev1.LabelArchStable, corev1.LabelOSStable,
	} {
		r.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpExists))
	}
	if ref := t.Spec.NodeClassRef; ref != nil {
		r.Add(scheduling.NewRequirement(karpv1.NodeClassLabelKey(ref.GroupKind()), corev1.NodeSelectorOpIn, ref.Name))
	}
	r.Add(scheduling.NewLabelRequirements(t.Labels).Values()...)
	for _, want := range t.Spec.Requirements {
		if !parseable(want.Operator, want.Values) {
			return r, "has a requirement on " + want.Key + " that cannot be read"
		}
		r.Add(scheduling.NewRequirementWithFlexibility(want.Key, want.Operator, want.MinValues, slices.Clone(want.Values)...))
	}
	return r, ""
}

// parseable guards Karpenter's constructors, which trust that the API server has checked the values.
func parseable(op corev1.NodeSelectorOperator, values []string) bool {
	switch op {
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.NodeSelectorOpGte, karpv1.NodeSelectorOpLte:
		if len(values) != 1 {
			return false
		}
		_, err := strconv.Atoi(values[0])
		return err == nil
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		return len(values) > 0
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		return true
	}
	return false
}

// narrow is what both the new node and the pod want, or why there is no such node.
func (p *pool) narrow(node, pod scheduling.Requirements) (scheduling.Requirements, string) {
	undefined := func(o *scheduling.CompatibilityOptions) {
		o.AllowUndefined = karpv1.WellKnownLabels
		for key := range pod {
			if p.comesWithInstance(key) {
				o.AllowUndefined = o.AllowUndefined.Union(sets.New(key))
			}
		}
	}
	if key := unmet(node, pod, undefined); key != "" {
		return nil, "cannot have " + pod.Get(key).String()
	}
	narrowed := maps.Clone(node)
	narrowed.Add(pod.Values()...)
	for _, key := range sortedKeys(narrowed) {
		r := narrowed[key]
		if r.MinValues != nil && r.Len() < *r.MinValues {
			return nil, "needs " + strconv.Itoa(*r.MinValues) + " values of " + key + " to choose from"
		}
	}
	return narrowed, ""
}

// comesWithInstance says whether the provider sets the label from the instance type (instance family, cpu, …).
func (p *pool) comesWithInstance(key string) bool {
	domain := karpv1.GetLabelDomain(key)
	return key == awsZoneID || p.provider != "" && (domain == p.provider || strings.HasSuffix(domain, "."+p.provider))
}

// awsZoneID is a label of the AWS provider outside its own domain.
const awsZoneID = "topology.k8s.aws/zone-id"

// unmet names the first requirement, by key, that the node cannot meet; empty where it meets all.
func unmet(node, pod scheduling.Requirements, o func(*scheduling.CompatibilityOptions)) string {
	if node.IsCompatible(pod, o) {
		return ""
	}
	for _, key := range sortedKeys(pod) {
		if !node.IsCompatible(scheduling.NewRequirements(pod[key]), o) {
			return key
		}
	}
	return sortedKeys(pod)[0]
}

// sizeOf is the most room that the NodePool's requirements allow a node: any, unless they bound the instance's cpu count
// or memory in MiB by the providers' labels (karpenter.k8s.aws/instance-cpu, karpenter.azure.com/sku-cpu, …).
func sizeOf(np *karpv1.NodePool) room {
	size := anySize()
	for _, r := range np.Spec.Template.Spec.Requirements {
		_, name, _ := strings.Cut(r.Key, "/")
		most, ok := largestAllowed(r)
		switch {
		case !ok:
		case name == "instance-cpu" || name == "sku-cpu":
			size.cpu = min(size.cpu, most*1000)
		case name == "instance-memory" || name == "sku-memory":
			size.memory = min(size.memory, most<<20)
		}
	}
	return size
}

func largestAllowed(r karpv1.NodeSelectorRequirementWithMinValues) (int64, bool) {
	largest, found := int64(0), false
	for _, v := range r.Values {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return 0, false
		}
		largest, found = max(largest, n), true
	}
	switch r.Operator {
	case corev1.NodeSelectorOpLt:
		return largest - 1, found
	case karpv1.NodeSelectorOpLte, corev1.NodeSelectorOpIn:
		return largest, found
	}
	return 0, false
}

// readLimits sets what the limits leave. Usage is status.resources, which Karpenter keeps, going nodes included: their
// share is not freed. Where the status does not name a resource (trimmed input) it is the capacity of the pool's Nodes.
func (s *simulation) readLimits(np *karpv1.NodePool, l *launcher) {
	if len(np.Spec.Limits) == 0 {
		return
	}
	l.pool.limits, l.pool.left = map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
	nodes, capacity := s.usage(np)
	for name, limit := range np.Spec.Limits {
		used := capacity.amount(name)
		if name == resourceNodes {
			used = nodes
		}
		if q, ok := np.Status.Resources[name]; ok {
			used = units(name, q)
		} else if name == resourceNodes && np.Status.Nodes != nil {
			used = *np.Status.Nodes
		}
		l.pool.limits[name] = units(name, limit)
		l.pool.left[name] = units(name, limit) - used
	}
	if left, ok := l.pool.left[resourceNodes]; ok {
		l.nodes = int(max(left, 0))
	}
}

// resourceNodes is the limit on the number of nodes.
const resourceNodes corev1.ResourceName = "nodes"

func units(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// usage counts the NodePool's Nodes and their capacity.
func (s *simulation) usage(np *karpv1.NodePool) (nodes int64, capacity room) {
	for i := range s.sites {
		st := &s.sites[i]
		if st.labels[karpv1.NodePoolLabelKey] != np.Name {
			continue
		}
		has := st.size
		if len(st.node.Status.Capacity) > 0 {
			has = roomOf(st.node.Status.Capacity)
		}
		nodes++
		capacity.add(&has)
	}
	return nodes, capacity
}

// limited says which limit leaves no room for the pod; empty where none does. A node has some of each of the basic
// resources, so that a limit that is used up forbids any node; a limit on devices forbids only pods that want them.
func (p *pool) limited(needs *room) string {
	for _, name := range sortedKeys(p.left) {
		need := needs.amount(name)
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
			need = max(need, 1)
		case resourceNodes:
			continue // counted by launcher.nodes
		}
		if need > p.left[name] {
			return "has " + quantity(name, max(p.left[name], 0)) + " " + string(name) + " left of its limit " + quantity(name, p.limits[name])
		}
	}
	return ""
}

func (p *pool) charge(needs *room) {
	for name := range p.left {
		p.left[name] -= needs.amount(name)
	}
}

// keepReplicas bounds a static NodePool: it launches nothing for pods, but replaces its going nodes up to spec.replicas. A
// replacement is taken to be as large as the smallest of those that go.
func (s *simulation) keepReplicas(np *karpv1.NodePool, l *launcher) {
	staying, missing := int64(0), 0
	for i := range s.sites {
		st := &s.sites[i]
		if st.labels[karpv1.NodePoolLabelKey] != np.Name {
			continue
		}
		if st.closed != isGoing {
			staying++
			continue
		}
		c := s.copyOf(i)
		if missing == 0 || c.size.tighter(&l.size) {
			l.size, l.ports = c.size, c.ports
		}
		missing++
	}
	l.nodes = min(missing, int(max(*np.Spec.Replicas-staying, 0)))
	if l.nodes == 0 && l.closed == "" {
		l.closed = "keeps a fixed number of nodes (replicas " + strconv.FormatInt(*np.Spec.Replicas, 10) + ")"
	}
}
