package readiness

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// KubeletPods is how the expected set names the kubelet's /pods as its source.
const KubeletPods = "KubeletPods"

// DecodeKubeletPods reads the answer of a kubelet's /pods, a PodList in JSON. One without items is no answer yet: a kubelet
// serves it before it has read its sources (facts/static-pods.md section 2.1). An error means that it is no such answer.
func DecodeKubeletPods(data []byte) (Expected, error) {
	var list corev1.PodList
	if err := json.Unmarshal(data, &list); err != nil {
		return Expected{}, fmt.Errorf("reading the kubelet's pods: %w", err)
	}
	if list.Kind != "" && list.Kind != "PodList" && list.Kind != "List" {
		return Expected{}, fmt.Errorf("reading the kubelet's pods: this is a %s, not a PodList", list.Kind)
	}
	if len(list.Items) == 0 {
		return Expected{Unknown: "the kubelet's answer has no pods: it may not have read its sources yet"}, nil
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	expected := Expected{Source: KubeletPods, Pods: FromKubelet(pods)}
	expected.Sort()
	return expected, nil
}
