package readiness

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the condition.
const (
	KubeletNotReady      = "KubeletNotReady"
	MirrorMissing        = "MirrorMissing"
	MirrorStale          = "MirrorStale"
	AwaitingRegistration = "AwaitingRegistration"
	NoStaticPods         = "NoStaticPods"
	AllMirrored          = "AllMirrored"
)

// Karpenter's own names (pkg/apis/v1 of sigs.k8s.io/karpenter), spelled here because the agent carries no Karpenter code.
const (
	nodePoolLabel     = "karpenter.sh/nodepool"
	registeredLabel   = "karpenter.sh/registered"
	unregisteredTaint = "karpenter.sh/unregistered"
)

// Bounds of the condition's message, in bytes; the API takes 32 KiB.
const (
	maxMessage = 16 << 10
	maxUnknown = 1 << 10 // it may quote an annotation that anybody wrote
)

// Result is what the condition is to say.
type Result struct {
	Status  corev1.ConditionStatus
	Reason  string
	Message string
	// Expected and WaitingFor are namespace/name, sorted, each once. WaitingFor has all that are not mirrored, missing and
	// stale alike.
	Expected   []string
	WaitingFor []string
	// Mirrors identifies the mirrors that count, for Settling: equal where the same objects stand for the same pods.
	Mirrors string
}

// Evaluate is the table of DESIGN.md section 6: the first reason that applies. pods may hold any pods of the API; it keeps
// none of its arguments.
func Evaluate(node *corev1.Node, expected Expected, pods []*corev1.Pod) Result {
	// 1. Nothing is known.
	if expected.Unknown != "" {
		return Result{Status: corev1.ConditionUnknown, Reason: KubeletNotReady, Message: shorten(expected.Unknown, maxUnknown)}
	}
	found := match(node, expected.Pods, pods)
	result := Result{Status: corev1.ConditionFalse, Expected: found.expected, WaitingFor: found.waiting(), Mirrors: strings.Join(found.mirrors, " ")}
	switch {
	// 2. and 3. Somebody is not on the books.
	case len(found.missing) > 0:
		result.Reason, result.Message = MirrorMissing, shorten(found.message(), maxMessage)
	case len(found.stale) > 0:
		result.Reason, result.Message = MirrorStale, shorten(found.message(), maxMessage)
	// 4. Karpenter would put a taint that is removed now back, and nobody would remove it again.
	case awaitsRegistration(node):
		result.Reason = AwaitingRegistration
		result.Message = "Karpenter has not registered the node yet and would put a taint that is removed now back"
	// 5. and 6.
	case len(expected.Pods) == 0:
		result.Status, result.Reason, result.Message = corev1.ConditionTrue, NoStaticPods, "the node has no static pods"
	default:
		result.Status, result.Reason = corev1.ConditionTrue, AllMirrored
		result.Message = fmt.Sprintf("each of the %d static pods is mirrored", len(found.expected))
	}
	return result
}

// awaitsRegistration tells whether Karpenter still merges startup taints into the node (facts/static-pods.md section 6).
func awaitsRegistration(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == unregisteredTaint {
			return true
		}
	}
	_, karpenters := node.Labels[nodePoolLabel]
	return karpenters && node.Labels[registeredLabel] != "true"
}

// matched is the expected set set against the API's pods.
type matched struct {
	expected []string
	missing  []string          // keys
	stale    []string          // keys
	why      map[string]string // by key
	mirrors  []string
}

func match(node *corev1.Node, expected []StaticPod, pods []*corev1.Pod) *matched {
	byKey := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		byKey[pod.Namespace+"/"+pod.Name] = pod
	}
	m := &matched{expected: []string{}, why: map[string]string{}}
	for _, want := range expected {
		m.add(node, want, byKey[want.Key()])
	}
	for _, keys := range []*[]string{&m.expected, &m.missing, &m.stale, &m.mirrors} {
		slices.Sort(*keys)
		*keys = slices.Compact(*keys)
	}
	return m
}

func (m *matched) add(node *corev1.Node, want StaticPod, pod *corev1.Pod) {
	key := want.Key()
	m.expected = append(m.expected, key)
	if pod == nil {
		m.missing = append(m.missing, key)
		return
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		m.missing = append(m.missing, key)
		m.why[key] = "an ordinary pod of that name stands in its place"
		return
	}
	if why := stale(node, want, pod); why != "" {
		m.stale = append(m.stale, key)
		m.why[key] = why
		return
	}
	m.mirrors = append(m.mirrors, key+"="+string(pod.UID))
}

func (m *matched) waiting() []string {
	waiting := append(slices.Clone(m.missing), m.stale...)
	slices.Sort(waiting)
	return append([]string{}, slices.Compact(waiting)...)
}

func (m *matched) message() string {
	var parts []string
	for _, group := range []struct {
		name string
		keys []string
	}{{"no mirror pod of ", m.missing}, {"a mirror pod that does not count of ", m.stale}} {
		var names []string
		for _, key := range group.keys {
			if why := m.why[key]; why != "" {
				key += " (" + why + ")"
			}
			names = append(names, key)
		}
		if len(names) > 0 {
			parts = append(parts, group.name+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// stale returns why a mirror does not count, or "": what the scheduler will not see, or not for long, and what stands for
// an older manifest (facts/static-pods.md section 1.6).
func stale(node *corev1.Node, want StaticPod, mirror *corev1.Pod) string {
	switch {
	case mirror.Spec.NodeName != node.Name:
		return "it is on node " + orNone(mirror.Spec.NodeName)
	case !ownedBy(mirror, node):
		return "it is not owned by this Node object"
	case mirror.DeletionTimestamp != nil:
		return "it is Terminating"
	case finished(mirror):
		return "it is " + string(mirror.Status.Phase)
	}
	hash := mirror.Annotations[corev1.MirrorPodAnnotationKey]
	if want.Hash != "" && hash != want.Hash {
		return fmt.Sprintf("its hash is %s, the kubelet's is %s", orNone(hash), want.Hash)
	}
	if madeOfContent(want.Hash) {
		return ""
	}
	// A LimitRange or an overhead may raise a mirror's requests; less is the mirror of an older manifest.
	cpu, memory := requests(mirror)
	switch {
	case cpu.Cmp(want.CPU) < 0:
		return fmt.Sprintf("it requests %s cpu, the static pod %s", cpu.String(), want.CPU.String())
	case memory.Cmp(want.Memory) < 0:
		return fmt.Sprintf("it requests %s memory, the static pod %s", memory.String(), want.Memory.String())
	}
	return ""
}

func ownedBy(pod *corev1.Pod, node *corev1.Node) bool {
	for _, owner := range pod.OwnerReferences {
		if owner.APIVersion == "v1" && owner.Kind == "Node" && owner.UID == node.UID {
			return true
		}
	}
	return false
}

// hashLength is the length of the hash that a kubelet makes of a manifest: 128 bits in hex (pkg/kubelet/config/common.go).
const hashLength = 32

// madeOfContent tells whether the hash changes with the manifest. Where the manifest sets metadata.uid, the hash is that
// UID and stays what it is through every edit.
func madeOfContent(hash string) bool {
	if len(hash) != hashLength {
		return false
	}
	for _, c := range hash {
		if !strings.ContainsRune("0123456789abcdef", c) {
			return false
		}
	}
	return true
}
