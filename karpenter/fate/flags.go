package fate

import (
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	safeToEvictAnnotation = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// defaultGrace is the API's default for terminationGracePeriodSeconds.
	defaultGrace = corev1.DefaultTerminationGracePeriodSeconds
)

// flags returns the pod's flags in the order of their constants. The departure is nil for a pod whose node stays.
func (s *snapshot) flags(pod *corev1.Pod, d *Departure) []Flag {
	var flags []Flag
	add := func(yes bool, f Flag) {
		if yes {
			flags = append(flags, f)
		}
	}
	add(slices.ContainsFunc(pod.Spec.Volumes, emptyDirOnDisk), EmptyDirData)
	add(slices.ContainsFunc(pod.Spec.Volumes, hostPath), HostPathData)
	add(s.localVolume(pod), LocalVolume)
	add(d != nil && graceExceeds(pod, d), GraceExceedsNotice)
	add(d != nil && notEvicted(pod, d), NotEvicted)
	add(doNotDisrupt(pod, s.options.Now), DoNotDisrupt)
	add(s.blockedByPDB(pod), BlockedByPDB)
	add(slices.ContainsFunc(pod.Finalizers, foreignFinalizer), HasFinalizer)
	add(pod.DeletionTimestamp != nil, Terminating)
	add(lacksNode(pod), NoNodeOwner)
	add(!ready(pod), Unready)
	return flags
}

// emptyDirOnDisk is an emptyDir whose data is more than memory: of the default medium.
func emptyDirOnDisk(v corev1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory &&
		!strings.HasPrefix(string(v.EmptyDir.Medium), string(corev1.StorageMediumHugePages))
}

func hostPath(v corev1.Volume) bool { return v.HostPath != nil }

func foreignFinalizer(name string) bool { return name != batchv1.JobTrackingFinalizer }

// lacksNode is a mirror pod that no Node owns: the garbage collector leaves it behind when its Node is deleted.
func lacksNode(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[mirrorAnnotation]; !mirror {
		return false
	}
	return !slices.ContainsFunc(pod.OwnerReferences, func(ref metav1.OwnerReference) bool { return isNode(&ref) })
}

// localVolume says whether a claim of the pod keeps its data on this node alone. A generic ephemeral volume's claim dies
// with the pod and pins nothing.
func (s *snapshot) localVolume(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim := s.PersistentVolumeClaim(pod.Namespace, source.ClaimName)
		if claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		volume := s.PersistentVolume(claim.Spec.VolumeName)
		if volume == nil {
			continue
		}
		if volume.Spec.Local != nil || volume.Spec.HostPath != nil || s.pinned(volume, pod.Spec.NodeName) {
			return true
		}
	}
	return false
}

// pinned says whether every term of the volume's node affinity allows this node's hostname only.
func (s *snapshot) pinned(volume *corev1.PersistentVolume, node string) bool {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) == 0 {
		return false
	}
	hostname := node
	if n := s.node(node); n != nil && n.Labels[corev1.LabelHostname] != "" {
		hostname = n.Labels[corev1.LabelHostname]
	}
	for i := range affinity.Required.NodeSelectorTerms {
		only := slices.ContainsFunc(affinity.Required.NodeSelectorTerms[i].MatchExpressions,
			func(e corev1.NodeSelectorRequirement) bool {
				return e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn &&
					len(e.Values) == 1 && e.Values[0] == hostname
			})
		if !only {
			return false
		}
	}
	return true
}

// graceExceeds says whether the pod may take longer to stop than its node's notice lasts.
func graceExceeds(pod *corev1.Pod, d *Departure) bool {
	if d.Deadline.IsZero() && d.Notice == 0 {
		return false
	}
	grace := int64(defaultGrace)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	return float64(grace) > d.Notice.Seconds()
}

// notEvicted says whether nobody evicts the pod before its machine dies. Karpenter leaves out what tolerates its taint,
// the taint manager what tolerates a NoExecute taint without limit; kubectl drain and the eviction API do not look at
// tolerations (facts/fate-truth.md C14).
func notEvicted(pod *corev1.Pod, d *Departure) bool {
	if d.Karpenter && tolerationFor(pod, &karpv1.DisruptedNoScheduleTaint) != nil {
		return true
	}
	if d.NoExecute == nil {
		return false
	}
	t := tolerationFor(pod, d.NoExecute)
	return t != nil && t.TolerationSeconds == nil
}

// tolerationFor returns the pod's first toleration that matches the taint, which is the one whose seconds count
// (k8s.io/kubernetes/pkg/apis/core/v1/helper GetMatchingTolerations); nil where there is none. The operators Lt and Gt
// are behind a gate that is off by default in 1.37 and match nothing.
func tolerationFor(pod *corev1.Pod, taint *corev1.Taint) *corev1.Toleration {
	for i := range pod.Spec.Tolerations {
		if t := &pod.Spec.Tolerations[i]; t.ToleratesTaint(logr.Discard(), taint, false) {
			return t
		}
	}
	return nil
}

// doNotDisrupt says whether the pod asks Karpenter or cluster-autoscaler to leave it alone. Karpenter also takes a
// duration from the pod's start on (karpenter pkg/utils/pod IsDoNotDisruptActive).
func doNotDisrupt(pod *corev1.Pod, now time.Time) bool {
	if pod.Annotations[safeToEvictAnnotation] == "false" {
		return true
	}
	value, asked := pod.Annotations[karpv1.DoNotDisruptAnnotationKey]
	if !asked || value == "true" {
		return asked
	}
	protected, err := time.ParseDuration(value)
	if err != nil || protected <= 0 {
		return false
	}
	return pod.Status.StartTime == nil || now.Sub(pod.Status.StartTime.Time) < protected
}

// budget is a PodDisruptionBudget with its selector read.
type budget struct {
	*policyv1.PodDisruptionBudget
	selects labels.Selector
}

// blockedByPDB says whether the eviction API refuses to evict the pod now (k8s.io/kubernetes
// pkg/registry/core/pod/storage/eviction.go): a Pending or Terminating pod it always takes.
func (s *snapshot) blockedByPDB(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodPending || !active(pod) {
		return false
	}
	var over *policyv1.PodDisruptionBudget
	for _, b := range s.budgetsOf(pod.Namespace) {
		if !b.selects.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if over != nil {
			return true // the API does not support two over one pod
		}
		over = b.PodDisruptionBudget
	}
	if over == nil {
		return false
	}
	if policy := over.Spec.UnhealthyPodEvictionPolicy; !ready(pod) {
		healthy := over.Status.DesiredHealthy > 0 && over.Status.CurrentHealthy >= over.Status.DesiredHealthy
		if healthy || policy != nil && *policy == policyv1.AlwaysAllow {
			return false
		}
	}
	return over.Status.DisruptionsAllowed <= 0
}

// budgetsOf reads the budgets of a namespace once per World. One whose selector cannot be read selects nothing.
func (s *snapshot) budgetsOf(namespace string) []budget {
	if known, read := s.budgets[namespace]; read {
		return known
	}
	var all []budget
	for _, pdb := range s.PodDisruptionBudgets(namespace) {
		if selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector); err == nil {
			all = append(all, budget{pdb, selector})
		}
	}
	s.budgets[namespace] = all
	return all
}
