package informers

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taintsOnly stands for all fields of a manager that owns a Node's spec.taints: who wrote the taints and when is all that
// is read of managedFields.
const taintsOnly = `{"f:spec":{"f:taints":{}}}`

// Trim is the transform of all informers: it drops in place what nothing in rollcall reads, which is most of an object's
// bytes. It must be idempotent, because client-go may apply it to an object that has been through it.
//
// What stays of a pod is what verdicts, flags, placement and mirrors read. A pod without owners keeps its whole spec: it
// is the only record from which it could be made again.
func Trim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		trimMeta(o)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		trimPod(o)
	case *corev1.Node:
		trimNode(o)
	case *appsv1.ReplicaSet:
		o.Spec.Template = corev1.PodTemplateSpec{}
		o.Status.Conditions = nil
	case *appsv1.StatefulSet:
		o.Spec.Template = corev1.PodTemplateSpec{}
		o.Spec.VolumeClaimTemplates = nil
		o.Status.Conditions = nil
	case *appsv1.DaemonSet:
		o.Spec.Template = corev1.PodTemplateSpec{}
		o.Status.Conditions = nil
	case *corev1.ReplicationController:
		o.Spec.Template = nil
		o.Status.Conditions = nil
	case *batchv1.Job:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *policyv1.PodDisruptionBudget:
		o.Status.Conditions = nil
		o.Status.DisruptedPods = nil
	}
	return obj, nil
}

func trimMeta(o metav1.Object) {
	if node, ok := o.(*corev1.Node); ok {
		node.ManagedFields = taintOwners(node.ManagedFields)
	} else {
		o.SetManagedFields(nil)
	}
	// The annotation holds a whole copy of the object.
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
}

// taintOwners keeps the entries that own spec.taints, each cut down to that.
func taintOwners(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		// A Node has no other field of that name, so the substring is enough.
		if entry.FieldsV1 == nil || entry.Subresource != "" || !strings.Contains(entry.FieldsV1.GetRawString(), `"f:taints"`) {
			continue
		}
		entry.FieldsV1 = metav1.NewFieldsV1(taintsOnly)
		kept = append(kept, entry)
	}
	return kept
}

func trimPod(pod *corev1.Pod) {
	if len(pod.OwnerReferences) > 0 {
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				trimContainer(&containers[i])
			}
		}
		pod.Spec.Volumes = trimVolumes(pod.Spec.Volumes)
		pod.Spec.EphemeralContainers = nil
		pod.Spec.HostAliases, pod.Spec.DNSConfig, pod.Spec.ImagePullSecrets = nil, nil, nil
		pod.Spec.SecurityContext = nil
	}
	status := &pod.Status
	status.Message, status.HostIP, status.PodIP = "", "", ""
	status.HostIPs, status.PodIPs, status.EphemeralContainerStatuses = nil, nil, nil
	for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			statuses[i] = trimStatus(statuses[i])
		}
	}
	for i := range status.Conditions {
		status.Conditions[i].Message = ""
	}
}

func trimContainer(c *corev1.Container) {
	*c = corev1.Container{
		Name:          c.Name,
		Ports:         c.Ports,
		Resources:     c.Resources,
		ResizePolicy:  c.ResizePolicy,
		RestartPolicy: c.RestartPolicy,
	}
}

// trimVolumes drops the volumes that hold no data of their own and tie the pod to nothing.
func trimVolumes(volumes []corev1.Volume) []corev1.Volume {
	return slices.DeleteFunc(volumes, func(v corev1.Volume) bool {
		return v.Projected != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil
	})
}

// trimStatus keeps what a podFailurePolicy matches (the exit code) and what an in-place resize changes (resources).
func trimStatus(s corev1.ContainerStatus) corev1.ContainerStatus {
	kept := corev1.ContainerStatus{
		Name:               s.Name,
		Ready:              s.Ready,
		RestartCount:       s.RestartCount,
		AllocatedResources: s.AllocatedResources,
		Resources:          s.Resources,
	}
	if ended := s.State.Terminated; ended != nil {
		kept.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: ended.ExitCode, FinishedAt: ended.FinishedAt}
	}
	return kept
}

func trimNode(node *corev1.Node) {
	node.Status.Images = nil
	node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	for i := range node.Status.Conditions {
		// Heartbeats change every few minutes and say nothing here.
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
}
