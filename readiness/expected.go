package readiness

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Annotations with which a kubelet describes its static pods (pkg/kubelet/types of Kubernetes). In a kubelet's own answers
// they cannot be forged: it writes them over whatever a manifest or an API object says.
const (
	ConfigSourceAnnotation = "kubernetes.io/config.source"
	ConfigHashAnnotation   = "kubernetes.io/config.hash"
)

// Expected is the expected set: the static pods that the kubelet of one node has accepted and has to run.
type Expected struct {
	// Unknown says, for people, why nothing is known yet; empty where the rest is an answer.
	Unknown string
	// Source tells where the answer comes from.
	Source string
	// BootID is the boot of the machine that the answer is about.
	BootID string
	// Observed is when this content was first seen.
	Observed time.Time
	Pods     []StaticPod
	Ignored  []IgnoredFile
}

// StaticPod is one pod of the expected set.
type StaticPod struct {
	Namespace string
	Name      string // with the node's name at its end
	// Hash is the kubelet's config.hash, empty where the source cannot know it: it is made of the kubelet's internal types
	// and differs from version to version (facts/static-pods.md section 1.5).
	Hash   string
	CPU    resource.Quantity // effective requests, as the scheduler counts them
	Memory resource.Quantity
}

// IgnoredFile is a file of the manifest directory that makes no pod.
type IgnoredFile struct {
	File string `json:"file"` // name in the directory
	Why  string `json:"why"`
}

// Key returns namespace/name.
func (p StaticPod) Key() string { return p.Namespace + "/" + p.Name }

// NewStaticPod describes the pod, whose name ends in the node's name already.
func NewStaticPod(pod *corev1.Pod, hash string) StaticPod {
	cpu, memory := requests(pod)
	return StaticPod{Namespace: pod.Namespace, Name: pod.Name, Hash: hash, CPU: cpu, Memory: memory}
}

// FromKubelet picks the static pods that are expected out of a kubelet's own list of its pods: those from a file or a
// URL that are neither finished nor rejected (which is Failed too).
func FromKubelet(pods []*corev1.Pod) []StaticPod {
	var expected []StaticPod
	for _, pod := range pods {
		if IsStatic(pod) && !finished(pod) {
			expected = append(expected, NewStaticPod(pod, pod.Annotations[ConfigHashAnnotation]))
		}
	}
	return expected
}

// IsStatic tells whether a pod of a kubelet's own list is a static one.
func IsStatic(pod *corev1.Pod) bool {
	source := pod.Annotations[ConfigSourceAnnotation]
	return source == "file" || source == "http"
}

// Same tells whether the two say the same of the same boot; when it was observed plays no part.
func (e *Expected) Same(o *Expected) bool {
	return e.Unknown == o.Unknown && e.Source == o.Source && e.BootID == o.BootID &&
		slices.EqualFunc(e.Pods, o.Pods, samePod) && slices.Equal(e.Ignored, o.Ignored)
}

func samePod(a, b StaticPod) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.Hash == b.Hash && a.CPU.Cmp(b.CPU) == 0 && a.Memory.Cmp(b.Memory) == 0
}

// Sort puts pods and files in order, so that equal sets compare equal.
func (e *Expected) Sort() {
	slices.SortFunc(e.Pods, func(a, b StaticPod) int {
		if c := strings.Compare(a.Key(), b.Key()); c != 0 {
			return c
		}
		return strings.Compare(a.Hash, b.Hash)
	})
	slices.SortFunc(e.Ignored, func(a, b IgnoredFile) int { return strings.Compare(a.File, b.File) })
}

// requests are the effective requests of a pod: sidecars, init containers, pod-level resources and overhead counted.
func requests(pod *corev1.Pod) (cpu, memory resource.Quantity) {
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return total[corev1.ResourceCPU], total[corev1.ResourceMemory]
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
