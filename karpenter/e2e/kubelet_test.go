package e2e

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// kubelet starts a real one under the name of a Node that Karpenter made.
func (a *act) kubelet(node string) {
	a.Helper()
	_, err := a.cluster.AddNode(a.Context(), livecluster.Node{Name: node, CPU: 1, Memory: "2Gi", ProviderID: "kwok://" + node, NoWait: true})
	a.must(err)
	a.Cleanup(func() { _ = a.cluster.KillNode(context.Background(), node) })
}

// untaint takes a taint off, as the agent does that it waits for.
func (a *act) untaint(node, key string) {
	a.Helper()
	a.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := a.client.CoreV1().Nodes().Get(a.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		_, err = a.client.CoreV1().Nodes().Update(a.Context(), n, metav1.UpdateOptions{})
		return err
	}))
}
