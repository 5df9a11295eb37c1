package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/rollcall-dev/rollcall/readiness"
)

// A machine of the storm, by its number. All that is known of it is in the API.
type machine int

// firstMachine is the number in the first machine's name, beside the spot node's.
const firstMachine = 2

// String is the name of the machine's node.
func (m machine) String() string { return "spot-" + strconv.Itoa(firstMachine+int(m)) }

func (m machine) bootID() string              { return "boot-" + m.String() }
func (m machine) proxy() string               { return "kube-proxy-" + m.String() }
func (m machine) proxyCPU() resource.Quantity { return resource.MustParse("100m") }

// join registers the machine's node as a kubelet and rollcall-agent do: with the readiness taint, and with the set of its
// static pods, one, which has no mirror yet. It has no room, so that the scheduler leaves it alone.
func (s *storm) join(ctx context.Context, m machine) error {
	expected := readiness.Expected{
		Source: "PodsAPI", BootID: m.bootID(), Observed: time.Now(),
		Pods: []readiness.StaticPod{{Namespace: metav1.NamespaceSystem, Name: m.proxy(), CPU: m.proxyCPU()}},
	}
	published, err := expected.Encode("demo")
	if err != nil {
		return err
	}
	s.say.step("%s joins, its static pod has no mirror yet", m)
	_, err = s.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.String(), Labels: map[string]string{"karpenter.sh/capacity-type": "spot"},
			Annotations: map[string]string{readiness.StaticPodsAnnotation: published},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: readiness.DefaultTaint.Key, Value: "pending", Effect: readiness.DefaultTaint.Effect}}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: m.bootID()},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now()}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating node %s: %w", m, err)
	}
	return nil
}

// mirror puts the machine's static pod on the books, as its kubelet would.
func (s *storm) mirror(ctx context.Context, m machine) error {
	node, err := s.client.CoreV1().Nodes().Get(ctx, m.String(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %s: %w", m, err)
	}
	controller := true
	s.say.step("%s: its static pod is mirrored", m)
	return s.run(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: m.proxy(),
			Annotations:     map[string]string{corev1.MirrorPodAnnotationKey: m.bootID()},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller}},
		},
		Spec: corev1.PodSpec{
			NodeName: m.String(),
			Containers: []corev1.Container{{Name: "kube-proxy", Image: "kube-proxy:1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: m.proxyCPU()}}}},
		},
	})
}

// fill runs one to three pods on the machine that nothing would make again.
func (s *storm) fill(ctx context.Context, m machine) error {
	bare := 1 + int(m)%3
	s.say.step("bare pods run on %s: %d", m, bare)
	for i := range bare {
		made := template("training", "")
		pod := &corev1.Pod{ObjectMeta: made.ObjectMeta, Spec: made.Spec}
		pod.Namespace, pod.Name, pod.Spec.NodeName = namespace, fmt.Sprintf("training-%d-%d", firstMachine+int(m), i), m.String()
		if err := s.run(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// run creates a pod that is bound, and says that it runs.
func (s *storm) run(ctx context.Context, pod *corev1.Pod) error {
	pods := s.client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	running := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, running, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("changing the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// taint adds a taint to the machine's node. The node lifecycle controller writes taints, too.
func (m machine) taint(ctx context.Context, client kubernetes.Interface, taint corev1.Taint) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, m.String(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = append(node.Spec.Taints, taint)
		_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// end takes the machine away, and with it what ran there.
func (s *storm) end(ctx context.Context, m machine) error {
	s.say.step("%s is gone, and its pods with it", m)
	if err := s.client.CoreV1().Nodes().Delete(ctx, m.String(), metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting node %s: %w", m, err)
	}
	at := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", m.String()).String()}
	for _, in := range []string{namespace, metav1.NamespaceSystem} {
		if err := s.client.CoreV1().Pods(in).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), at); err != nil {
			return fmt.Errorf("deleting the pods of %s: %w", m, err)
		}
	}
	return nil
}
