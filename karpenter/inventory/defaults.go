package inventory

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	requests "k8s.io/component-helpers/resource"
)

// defaultRequests fills in the requests that a manifest leaves to the API server: a container's limits, and those of the
// pod as a whole where its containers ask for nothing of the kind (k8s.io/kubernetes/pkg/apis/core/v1 defaults.go
// SetDefaults_Pod). A pod from an API server has them already.
func defaultRequests(pod *corev1.Pod) {
	defaultContainerRequests(pod.Spec.Containers)
	defaultContainerRequests(pod.Spec.InitContainers)
	whole := pod.Spec.Resources
	if whole == nil || len(whole.Limits) == 0 {
		return
	}
	asked := requests.AggregateContainerRequests(pod, requests.PodResourcesOptions{})
	for name, limit := range whole.Limits {
		if _, byContainers := asked[name]; !byContainers {
			whole.Requests = request(whole.Requests, name, limit)
		}
	}
}

func defaultContainerRequests(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		for name, limit := range r.Limits {
			r.Requests = request(r.Requests, name, limit)
		}
	}
}

// request adds a request, unless there is one of that name, and returns the list.
func request(list corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	if _, given := list[name]; !given {
		list[name] = amount.DeepCopy()
	}
	return list
}
