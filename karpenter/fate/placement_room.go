package fate

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	requests "k8s.io/component-helpers/resource"
)

// unlimited is more than any node has, and far enough from overflow to be reduced.
const unlimited = math.MaxInt64 / 4

// A room is an amount of each resource: cpu in millicores, all else in whole units (bytes, devices, pods).
type room struct {
	cpu, memory, storage, pods int64
	others                     map[corev1.ResourceName]int64
	anything                   bool // resources that others does not name are unlimited
}

// anySize is the room on a node whose size nobody knows.
func anySize() room {
	return room{cpu: unlimited, memory: unlimited, storage: unlimited, pods: unlimited, anything: true}
}

// roomOf reads a resource list. Names that no list carries count as zero.
func roomOf(list corev1.ResourceList) room {
	var r room
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.cpu = q.MilliValue()
		case corev1.ResourceMemory:
			r.memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			r.storage = q.Value()
		case corev1.ResourcePods:
			r.pods = q.Value()
		default:
			if r.others == nil {
				r.others = make(map[corev1.ResourceName]int64, 1)
			}
			r.others[name] = q.Value()
		}
	}
	return r
}

// nodeRoom is what a node has for pods before any runs there: its allocatable, or its capacity where the kubelet has not
// said. A node that names no number of pods (trimmed input) has no limit of them.
func nodeRoom(n *corev1.Node) room {
	list := n.Status.Allocatable
	if len(list) == 0 {
		list = n.Status.Capacity
	}
	r := roomOf(list)
	if _, ok := list[corev1.ResourcePods]; !ok {
		r.pods = unlimited
	}
	return r
}

// successorNeeds is what a pod's successor asks for: its spec with init containers, sidecars, pod-level resources and
// overhead.
func successorNeeds(p *corev1.Pod) room {
	r := roomOf(requests.PodRequests(p, requests.PodResourcesOptions{}))
	r.pods = 1
	return r
}

// residentNeeds is what a running pod holds. A resize in place shows in the status (KEP-1287) and is counted as the
// scheduler counts it.
func residentNeeds(p *corev1.Pod) room {
	resized := false
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		resized = resized || c.Resources != nil || len(c.AllocatedResources) > 0
	}
	r := roomOf(requests.PodRequests(p, requests.PodResourcesOptions{
		UseStatusResources: resized, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}))
	r.pods = 1
	return r
}

func (r *room) other(name corev1.ResourceName) int64 {
	if v, ok := r.others[name]; ok {
		return v
	}
	if r.anything {
		return unlimited
	}
	return 0
}

// holds says whether n fits. What a pod does not ask for cannot be lacking, even on an overcommitted node.
func (r *room) holds(n *room) bool {
	if n.cpu > 0 && n.cpu > r.cpu || n.memory > 0 && n.memory > r.memory ||
		n.storage > 0 && n.storage > r.storage || n.pods > r.pods {
		return false
	}
	for name, v := range n.others {
		if v > 0 && v > r.other(name) {
			return false
		}
	}
	return true
}

// lacking names the first resource that keeps n out, in the order cpu, memory, ephemeral-storage, pods, others by name.
func (r *room) lacking(n *room) corev1.ResourceName {
	switch {
	case n.cpu > 0 && n.cpu > r.cpu:
		return corev1.ResourceCPU
	case n.memory > 0 && n.memory > r.memory:
		return corev1.ResourceMemory
	case n.storage > 0 && n.storage > r.storage:
		return corev1.ResourceEphemeralStorage
	case n.pods > r.pods:
		return corev1.ResourcePods
	}
	for _, name := range sortedKeys(n.others) {
		if v := n.others[name]; v > 0 && v > r.other(name) {
			return name
		}
	}
	return ""
}

func (r *room) take(n *room) {
	r.cpu -= n.cpu
	r.memory -= n.memory
	r.storage -= n.storage
	r.pods -= n.pods
	for name, v := range n.others {
		if left := r.other(name); left != unlimited {
			r.others = own(r.others)
			r.others[name] = left - v
		}
	}
}

// own makes a nil map writable; a room's map is never shared with another room.
func own(m map[corev1.ResourceName]int64) map[corev1.ResourceName]int64 {
	if m == nil {
		return map[corev1.ResourceName]int64{}
	}
	return m
}

func (r *room) add(n *room) {
	r.cpu, r.memory, r.storage, r.pods = r.cpu+n.cpu, r.memory+n.memory, r.storage+n.storage, r.pods+n.pods
	for name, v := range n.others {
		r.others = own(r.others)
		r.others[name] += v
	}
}

// widen raises each amount to that of n where it is larger.
func (r *room) widen(n *room) {
	r.cpu, r.memory, r.storage = max(r.cpu, n.cpu), max(r.memory, n.memory), max(r.storage, n.storage)
	for name, v := range n.others {
		r.others = own(r.others)
		r.others[name] = max(r.others[name], v)
	}
}

// share is the largest part of any one resource of most that r takes; a resource that most lacks counts as all of it.
func (r *room) share(most *room) float64 {
	largest := 0.0
	for _, name := range r.names() {
		need, all := r.amount(name), most.amount(name)
		switch {
		case need <= 0 || name == corev1.ResourcePods:
		case all <= 0:
			largest = max(largest, 1)
		default:
			largest = max(largest, float64(need)/float64(all))
		}
	}
	return largest
}

// tighter says whether r has less left than o: cpu, then memory.
func (r *room) tighter(o *room) bool {
	if r.cpu != o.cpu {
		return r.cpu < o.cpu
	}
	return r.memory < o.memory
}

func (r *room) clone() room {
	c := *r
	if r.others != nil {
		c.others = make(map[corev1.ResourceName]int64, len(r.others))
		for k, v := range r.others {
			c.others[k] = v
		}
	}
	return c
}

// names lists the resources of r: the four that every node has, then the others by name.
func (r *room) names() []corev1.ResourceName {
	names := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
	}
	return append(names, sortedKeys(r.others)...)
}

func (r *room) amount(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.cpu
	case corev1.ResourceMemory:
		return r.memory
	case corev1.ResourceEphemeralStorage:
		return r.storage
	case corev1.ResourcePods:
		return r.pods
	}
	return r.other(name)
}

// quantity writes an amount as people write it in a manifest: 1500m, 512Mi, 2.
func quantity(name corev1.ResourceName, v int64) string {
	switch name {
	case corev1.ResourceCPU:
		return resource.NewMilliQuantity(v, resource.DecimalSI).String()
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return resource.NewQuantity(v, resource.BinarySI).String()
	}
	return resource.NewQuantity(v, resource.DecimalSI).String()
}

// A hostPort is one port of a machine. Empty address is all addresses.
type hostPort struct {
	address  string
	protocol corev1.Protocol
	port     int32
	pod      string // who holds it, for the words
}

// hostPorts are the machine's ports that a pod takes: those of containers and sidecars, not of init containers that end
// (kube-scheduler util.GetHostPorts). With hostNetwork every container port is one, as the API server's defaulting has it.
func hostPorts(p *corev1.Pod) []hostPort {
	var ports []hostPort
	add := func(c *corev1.Container) {
		for _, cp := range c.Ports {
			port := cp.HostPort
			if port == 0 && p.Spec.HostNetwork {
				port = cp.ContainerPort
			}
			if port <= 0 {
				continue
			}
			hp := hostPort{address: cp.HostIP, protocol: cp.Protocol, port: port, pod: p.Namespace + "/" + p.Name}
			if hp.protocol == "" {
				hp.protocol = corev1.ProtocolTCP
			}
			if hp.address == "0.0.0.0" || hp.address == "::" {
				hp.address = ""
			}
			ports = append(ports, hp)
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return ports
}

func (h hostPort) conflicts(o hostPort) bool {
	return h.port == o.port && h.protocol == o.protocol &&
		(h.address == o.address || h.address == "" || o.address == "")
}
