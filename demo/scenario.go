package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

const (
	namespace = "shop"
	spotNode  = "spot-1"   // the node that is interrupted
	safeNode  = "stable-1" // the node that stays
)

// actor is a pod on the spot node and what has to become of it.
type actor struct {
	namespace, prefix string // the pod's name begins with prefix
	what              string // how it came to be
	verdict           fate.Verdict
	reason            fate.Reason
}

// cast is everything on the spot node, in the order in which it is shown.
var cast = []actor{
	{namespace, "notebook", "bare pod", fate.Lost, fate.NoController},
	{namespace, "load-test", "bare pod", fate.Lost, fate.NoController},
	{namespace, "orphan-", "its ReplicaSet was deleted with --cascade=orphan", fate.Lost, fate.NoController},
	{namespace, "web-", "Deployment", fate.Returns, fate.ReplicaSet},
	{namespace, "queue-0", "StatefulSet", fate.Returns, fate.StatefulSet},
	{namespace, "import-", "Job", fate.Returns, fate.Job},
	{namespace, "logs-", "DaemonSet", fate.GoesWithNode, fate.DaemonSet},
	{"kube-system", "kube-proxy-", "static pod (a file on the node)", fate.Static, fate.MirrorPod},
}

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: kube-proxy, namespace: kube-system}
spec:
  hostNetwork: true
  containers: [{name: kube-proxy, image: "kube-proxy:1", resources: {requests: {cpu: 100m}}}]
`

// furnish adds the two nodes and makes the cast.
func furnish(ctx context.Context, cluster *livecluster.Cluster, client kubernetes.Interface, say *narrator) error {
	say.step("adding nodes %s (with a static pod) and %s, each a real kubelet", spotNode, safeNode)
	if err := addNodes(ctx, cluster); err != nil {
		return err
	}
	say.step("creating a Deployment, a StatefulSet, a DaemonSet, a Job, two bare pods and an orphan on %s", spotNode)
	return createWorkloads(ctx, client)
}

// addNodes starts two kubelets; the spot node has a static pod in its manifest directory.
func addNodes(ctx context.Context, cluster *livecluster.Cluster) error {
	for _, node := range []livecluster.Node{
		{Name: spotNode, CPU: 4, Memory: "8Gi", Labels: map[string]string{"karpenter.sh/capacity-type": "spot"}},
		{Name: safeNode, CPU: 4, Memory: "8Gi", Labels: map[string]string{"karpenter.sh/capacity-type": "on-demand"}},
	} {
		machine, err := cluster.AddNode(ctx, node)
		if err != nil {
			return err
		}
		if node.Name == spotNode {
			if err := os.WriteFile(filepath.Join(machine.StaticPods, "kube-proxy.yaml"), []byte(staticPod), 0o600); err != nil {
				return fmt.Errorf("writing the static pod: %w", err)
			}
		}
	}
	return nil
}

// createWorkloads makes the cast on the spot node: the other node is cordoned meanwhile.
func createWorkloads(ctx context.Context, client kubernetes.Interface) error {
	if err := cordon(ctx, client, safeNode, true); err != nil {
		return err
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", namespace, err)
	}
	if err := eventually(ctx, "the namespace's service account", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	}); err != nil {
		return err
	}
	for _, create := range []func(context.Context, kubernetes.Interface) error{createControlled, createBare, createOrphan} {
		if err := create(ctx, client); err != nil {
			return err
		}
	}
	if err := eventually(ctx, "every pod to run on "+spotNode, func(ctx context.Context) (bool, error) {
		pods, err := castPods(ctx, client)
		if err != nil {
			return false, nil // not all there yet
		}
		for _, pod := range pods {
			if pod.Status.Phase != corev1.PodRunning {
				return false, nil
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	return cordon(ctx, client, safeNode, false)
}

func createControlled(ctx context.Context, client kubernetes.Interface) error {
	one := int32(1)
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: namespace} }
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: object("web"), Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector("web"), Template: template("web", "")},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a Deployment: %w", err)
	}
	if _, err := client.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: object("queue"), Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector("queue"), Template: template("queue", "")},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a StatefulSet: %w", err)
	}
	if _, err := client.AppsV1().DaemonSets(namespace).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: object("logs"), Spec: appsv1.DaemonSetSpec{Selector: selector("logs"), Template: template("logs", "")},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a DaemonSet: %w", err)
	}
	if _, err := client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: object("import"), Spec: batchv1.JobSpec{Template: template("import", corev1.RestartPolicyNever)},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a Job: %w", err)
	}
	return nil
}

func createBare(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range []string{"notebook", "load-test"} {
		made := template(name, "")
		pod := &corev1.Pod{ObjectMeta: made.ObjectMeta, Spec: made.Spec}
		pod.Name = name
		if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a bare pod: %w", err)
		}
	}
	return nil
}

// createOrphan makes a ReplicaSet's pod and deletes the ReplicaSet alone, as 'kubectl delete --cascade=orphan' does.
func createOrphan(ctx context.Context, client kubernetes.Interface) error {
	sets := client.AppsV1().ReplicaSets(namespace)
	one := int32(1)
	if _, err := sets.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "orphan", Namespace: namespace},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "orphan"}}, Template: template("orphan", ""),
		},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a ReplicaSet: %w", err)
	}
	ownerless := func(want bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=orphan"})
			return err == nil && len(pods.Items) == 1 && (len(pods.Items[0].OwnerReferences) == 0) == want, nil
		}
	}
	if err := eventually(ctx, "the ReplicaSet's pod", ownerless(false)); err != nil {
		return err
	}
	orphan := metav1.DeletePropagationOrphan
	if err := sets.Delete(ctx, "orphan", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		return fmt.Errorf("deleting the ReplicaSet: %w", err)
	}
	return eventually(ctx, "the pod to be orphaned", ownerless(true))
}

func template(app string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			RestartPolicy: restart,
			Containers:    []corev1.Container{{Name: app, Image: app + ":1"}},
		},
	}
}

func cordon(ctx context.Context, client kubernetes.Interface, name string, on bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)
	if _, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordoning %s: %w", name, err)
	}
	return nil
}

// castPods returns the pod of each actor, in the order of the cast; one that is missing is an error.
func castPods(ctx context.Context, client kubernetes.Interface) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + spotNode})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", spotNode, err)
	}
	pods := make([]corev1.Pod, 0, len(cast))
next:
	for _, a := range cast {
		for _, pod := range list.Items {
			if pod.Namespace == a.namespace && strings.HasPrefix(pod.Name, a.prefix) {
				pods = append(pods, pod)
				continue next
			}
		}
		return nil, fmt.Errorf("no pod %s/%s… on %s", a.namespace, a.prefix, spotNode)
	}
	return pods, nil
}

func eventually(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, condition); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}
