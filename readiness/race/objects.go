package race

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	deployment = "web"
	raceLabel  = "cluster.rollcall.dev/race" // on the nodes that the Deployment's pods may run on
	// neighbours are the further static pods of a throttled node, which ask for nothing but their mirrors.
	neighbours = 8
)

// suffix ends the name of the namespace of the static pods with that cause.
var suffix = map[Cause]string{AbsentNamespace: "absent", Denied: "denied", Throttled: "throttled"}

// causes says how many nodes have which.
func (r *race) causes() string {
	var parts []string
	for _, cause := range []Cause{AbsentNamespace, Denied, Throttled} {
		if n := len(r.with(cause)); n > 0 {
			parts = append(parts, fmt.Sprintf("%s (%d)", cause, n))
		}
	}
	return strings.Join(parts, ", ")
}

func (r *race) createNamespace(ctx context.Context, name string) error {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := r.client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// createDeployment makes a Deployment whose pods fit on the nodes only where nobody else does.
func (r *race) createDeployment(ctx context.Context) error {
	if err := r.createNamespace(ctx, r.namespace()); err != nil {
		return err
	}
	replicas, labels := int32(r.replicas()), map[string]string{"app": deployment}
	_, err := r.client.AppsV1().Deployments(r.namespace()).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deployment},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{raceLabel: r.Name},
				Containers: []corev1.Container{{Name: "c", Image: "i:1", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(podCPU)}}}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the Deployment: %w", err)
	}
	return nil
}

// createObstacles makes the namespaces of static pods that are there in time, and refuses mirrors in one of them.
func (r *race) createObstacles(ctx context.Context) error {
	for _, cause := range []Cause{Denied, Throttled} {
		if err := r.createNamespace(ctx, r.spaceOf(cause)); err != nil {
			return err
		}
	}
	return r.cluster.RefuseMirrors(ctx, r.policy(), r.spaceOf(Denied))
}

// lift takes away what keeps the mirrors from being made.
func (r *race) lift(ctx context.Context) error {
	if err := r.createNamespace(ctx, r.spaceOf(AbsentNamespace)); err != nil {
		return err
	}
	return r.cluster.Allow(ctx, r.policy())
}

// writeManifests makes the manifest directory of each machine to come.
func (r *race) writeManifests(context.Context) error {
	for i, cause := range r.Causes {
		if err := os.Mkdir(r.manifests(i), 0o700); err != nil {
			return err
		}
		for name, cpu := range staticPodsOf(cause) {
			text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\n"+
				"spec: {hostNetwork: true, containers: [{name: c, image: \"i:1\", resources: {requests: {cpu: %s}}}]}\n", name, r.spaceOf(cause), cpu)
			if err := os.WriteFile(filepath.Join(r.manifests(i), name+".yaml"), []byte(text), 0o600); err != nil {
				return fmt.Errorf("writing a static pod: %w", err)
			}
		}
	}
	return nil
}

// staticPodsOf are the static pods of a node, by name, and the CPU that they ask for.
func staticPodsOf(cause Cause) map[string]string {
	pods := map[string]string{"proxy": staticCPU}
	if cause == Throttled {
		for i := range neighbours {
			pods[fmt.Sprintf("neighbour-%d", i)] = "0"
		}
	}
	return pods
}

// staticPods are the mirrors that each node has to have, as namespace/name.
func (r *race) staticPods() map[string][]string {
	all := map[string][]string{}
	for i, cause := range r.Causes {
		for name := range staticPodsOf(cause) {
			all[r.node(i)] = append(all[r.node(i)], r.spaceOf(cause)+"/"+name+"-"+r.node(i))
		}
	}
	return all
}
