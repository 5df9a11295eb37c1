package informers

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func aPod(owned bool) *corev1.Pod {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	container := corev1.Container{
		Name: "c", Image: "i:1", Command: []string{"run"}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
		Ports:     []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}},
		Resources: corev1.ResourceRequirements{Requests: requests},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Finalizers: []string{"f"}, Labels: map[string]string{"l": "v"},
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}", corev1.MirrorPodAnnotationKey: "hash"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{container}, InitContainers: []corev1.Container{container},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodFailed, PodIP: "10.0.0.1",
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", ImageID: "sha256:0", RestartCount: 2,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, Message: "long"}},
			}},
		},
	}
	if owned {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", UID: "u"}}
	}
	return pod
}

func trimmed[T runtime.Object](t *testing.T, object T) T {
	t.Helper()
	once, err := Trim(object)
	if err != nil {
		t.Fatal(err)
	}
	kept := once.(T).DeepCopyObject()
	twice, err := Trim(once)
	if err != nil || !reflect.DeepEqual(twice, any(kept)) {
		t.Errorf("not idempotent: %v\n%+v\n%+v", err, twice, kept)
	}
	return once.(T)
}

func TestTrimPod(t *testing.T) {
	owned := trimmed(t, aPod(true))
	container := owned.Spec.Containers[0]
	switch {
	case owned.ManagedFields != nil || owned.Annotations[corev1.LastAppliedConfigAnnotation] != "":
		t.Error("keeps what nothing reads in metadata")
	case owned.Annotations[corev1.MirrorPodAnnotationKey] == "" || len(owned.Finalizers) != 1 || owned.Labels["l"] == "":
		t.Error("drops metadata that rules read")
	case container.Image != "" || container.Env != nil || container.Command != nil:
		t.Error("keeps how an owned pod's container runs")
	case container.Resources.Requests.Cpu().Value() != 1 || container.Ports[0].HostPort != 80:
		t.Error("drops what placement reads")
	case len(owned.Spec.Volumes) != 1 || owned.Spec.Volumes[0].EmptyDir == nil:
		t.Errorf("volumes %v, want the emptyDir alone", owned.Spec.Volumes)
	}
	ended := owned.Status.ContainerStatuses[0]
	if ended.State.Terminated.ExitCode != 143 || ended.State.Terminated.Message != "" || ended.ImageID != "" || ended.RestartCount != 2 {
		t.Errorf("container status %+v", ended)
	}

	bare := trimmed(t, aPod(false))
	if !reflect.DeepEqual(bare.Spec, aPod(false).Spec) {
		t.Error("a pod without owners lost a part of its spec, which nothing else has")
	}
}

func TestTrimNode(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: &at, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	node := trimmed(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: []metav1.ManagedFieldsEntry{
			entry("kubelet", "status", `{"f:status":{}}`),
			entry("handler", "", `{"f:metadata":{"f:labels":{}},"f:spec":{"f:taints":{}}}`),
			entry("labeller", "", `{"f:metadata":{"f:labels":{}}}`),
			{Manager: "none"},
		}},
		Status: corev1.NodeStatus{
			Images:     []corev1.ContainerImage{{Names: []string{"i:1"}}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: at, LastTransitionTime: at}},
		},
	})
	if len(node.ManagedFields) != 1 || node.ManagedFields[0].Manager != "handler" || node.ManagedFields[0].FieldsV1.GetRawString() != taintsOnly {
		t.Errorf("managed fields %v, want the taints' owner alone", node.ManagedFields)
	}
	if node.Status.Images != nil || !node.Status.Conditions[0].LastHeartbeatTime.IsZero() || node.Status.Conditions[0].LastTransitionTime.IsZero() {
		t.Errorf("status %+v", node.Status)
	}
}

func TestTrimOwners(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	one := int32(1)
	rs := trimmed(t, &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: &one, Template: template}})
	if rs.Spec.Template.Spec.Containers != nil || *rs.Spec.Replicas != 1 {
		t.Errorf("ReplicaSet %+v", rs.Spec)
	}
	sts := trimmed(t, &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
		Replicas: &one, Template: template, Ordinals: &appsv1.StatefulSetOrdinals{Start: 1}, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}}}})
	if sts.Spec.Template.Spec.Containers != nil || sts.Spec.VolumeClaimTemplates != nil || sts.Spec.Ordinals.Start != 1 {
		t.Errorf("StatefulSet %+v", sts.Spec)
	}
	job := trimmed(t, &batchv1.Job{
		Spec:   batchv1.JobSpec{Parallelism: &one, Template: template, PodFailurePolicy: &batchv1.PodFailurePolicy{}},
		Status: batchv1.JobStatus{Failed: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed}}}})
	if job.Spec.Template.Spec.Containers != nil || job.Spec.PodFailurePolicy == nil || job.Status.Failed != 1 || len(job.Status.Conditions) != 1 {
		t.Errorf("Job %+v", job)
	}
	if got, err := Trim("no object"); err != nil || got != "no object" {
		t.Errorf("got %v, %v", got, err)
	}
}
