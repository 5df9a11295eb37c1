package inventory

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rollcall-dev/rollcall/karpenter"
)

// What is kept of an object: all that a rule, the placement or the report may read, and no more. A pod costs a third of
// what it would otherwise.

// keepMeta drops what no rule reads of any object's metadata.
func keepMeta[P metav1.Object](object P) {
	object.SetManagedFields(nil)
	delete(object.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
}

func keepPod(pod *corev1.Pod) {
	keepMeta(pod)
	defaultRequests(pod)
	spec := &pod.Spec
	spec.Containers = keepContainers(spec.Containers)
	spec.InitContainers = keepContainers(spec.InitContainers)
	spec.EphemeralContainers = nil
	spec.SecurityContext, spec.DNSConfig = nil, nil
	spec.ImagePullSecrets, spec.HostAliases, spec.ReadinessGates = nil, nil, nil
	spec.Volumes = keepVolumes(spec.Volumes)

	status := &pod.Status
	status.PodIPs, status.HostIPs, status.EphemeralContainerStatuses = nil, nil, nil
	status.ContainerStatuses = keepContainerStatuses(status.ContainerStatuses)
	status.InitContainerStatuses = keepContainerStatuses(status.InitContainerStatuses)
}

// keepContainers keeps what the scheduler counts: requests, ports, and which init containers are sidecars.
func keepContainers(containers []corev1.Container) []corev1.Container {
	for i := range containers {
		c := &containers[i]
		containers[i] = corev1.Container{
			Name: c.Name, Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy,
		}
	}
	return containers
}

// keepVolumes drops volumes that tie the pod to nothing.
func keepVolumes(volumes []corev1.Volume) []corev1.Volume {
	kept := volumes[:0]
	for _, v := range volumes {
		if v.Projected == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// keepContainerStatuses keeps what an in-place resize gave, and how a container ended.
func keepContainerStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	for i := range statuses {
		s := &statuses[i]
		statuses[i] = corev1.ContainerStatus{
			Name: s.Name, Ready: s.Ready, Started: s.Started,
			Resources: s.Resources, AllocatedResources: s.AllocatedResources,
		}
		if t := s.State.Terminated; t != nil {
			statuses[i].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, FinishedAt: t.FinishedAt}
		}
	}
	return statuses
}

// keepNode keeps of managedFields the entries that date a taint (DESIGN.md section 2).
func keepNode(node *corev1.Node) {
	var dated []metav1.ManagedFieldsEntry
	for _, m := range node.ManagedFields {
		if karpenter.OwnsTaints(m) {
			dated = append(dated, m)
		}
	}
	keepMeta(node)
	node.ManagedFields = dated
	node.Status.Images = nil
	node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
}

// A controller's template is not read: the pod's own spec stands for its successor's (DESIGN.md section 4).

func keepReplicaSet(rs *appsv1.ReplicaSet) {
	keepMeta(rs)
	rs.Spec.Template = corev1.PodTemplateSpec{}
}

func keepReplicationController(rc *corev1.ReplicationController) {
	keepMeta(rc)
	rc.Spec.Template = nil
}

func keepStatefulSet(set *appsv1.StatefulSet) {
	keepMeta(set)
	set.Spec.Template = corev1.PodTemplateSpec{}
	set.Spec.VolumeClaimTemplates = nil
}

func keepDaemonSet(ds *appsv1.DaemonSet) {
	keepMeta(ds)
	ds.Spec.Template = corev1.PodTemplateSpec{}
}

func keepJob(job *batchv1.Job) {
	keepMeta(job)
	job.Spec.Template = corev1.PodTemplateSpec{}
}

// keepWorkflow drops the status, which may hold a megabyte of steps done.
func keepWorkflow(object *unstructured.Unstructured) {
	keepMeta(object)
	delete(object.Object, "status")
}
