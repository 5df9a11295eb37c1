package karpenter

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// related returns the pod and all pods whose fate may hang on its own, wherever they run: pods of the same Job (it fails
// as a whole), pods that it owns and the pod that owns it, and so on from each of them.
func (c *Controller) related(pod *corev1.Pod) []*corev1.Pod {
	seen := map[types.UID]bool{pod.UID: true}
	all := []*corev1.Pod{pod}
	for i := 0; i < len(all); i++ {
		for _, p := range c.neighbours(all[i]) {
			if !seen[p.UID] {
				seen[p.UID] = true
				all = append(all, p)
			}
		}
	}
	return all
}

func (c *Controller) neighbours(pod *corev1.Pod) []*corev1.Pod {
	pods := c.informers.PodsOwnedBy(pod.Namespace, pod.UID)
	for _, ref := range pod.OwnerReferences {
		switch {
		case isJob(ref):
			pods = append(pods, c.informers.PodsOwnedBy(pod.Namespace, ref.UID)...)
		case ref.Kind == "Pod" && ref.APIVersion == "v1":
			owner, err := c.informers.Core().V1().Pods().Lister().Pods(pod.Namespace).Get(ref.Name)
			if err == nil && owner.UID == ref.UID {
				pods = append(pods, owner)
			}
		}
	}
	return pods
}

func isJob(ref metav1.OwnerReference) bool {
	return ref.Kind == "Job" && strings.HasPrefix(ref.APIVersion, batchv1.GroupName+"/")
}

func hasJobStatus(object any) bool {
	_, job := last[*batchv1.Job](object)
	return job
}

// The index functions.

func indexMarkedBy(object any) ([]string, error) {
	pod := object.(*corev1.Pod)
	if _, marked := markOf(pod); marked {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

func indexMarkedFor(object any) ([]string, error) {
	text, marked := markOf(object.(*corev1.Pod))
	if marker, ok := ParseMarker(text); marked && ok {
		return []string{marker.Node}, nil
	}
	return nil, nil
}

func (c *Controller) indexSignalled(object any) ([]string, error) {
	if c.options.Disruption.signalled(object.(*corev1.Node)) {
		return []string{anySignalled}, nil
	}
	return nil, nil
}
