package livekarpenter

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// kwokLabel is on every Node of Karpenter's kwok provider (sigs.k8s.io/karpenter kwok/apis/v1alpha1/labels.go).
const kwokLabel = "kwok.x-k8s.io/node"

const (
	heartbeat = 10 * time.Second
	// stopTime is how long a container takes to stop that stops at once.
	stopTime = 300 * time.Millisecond
)

// A StandIn stands for the kubelets of Karpenter's Nodes, as kwok does in a cluster: it makes them Ready, runs their pods
// and lets them stop when they are deleted. Hundreds of nodes cost it next to nothing.
type StandIn struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory

	mu   sync.Mutex
	held map[string]bool // guarded by mu; NodePools
}

// StartStandIn makes one that works until the context ends.
func StartStandIn(ctx context.Context, config *rest.Config) (*StandIn, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &StandIn{client: client, factory: informers.NewSharedInformerFactory(client, heartbeat), held: map[string]bool{}}
	nodes, pods := s.factory.Core().V1().Nodes().Informer(), s.factory.Core().V1().Pods().Informer()
	for informer, see := range map[cache.SharedIndexInformer]func(context.Context, any){nodes: s.node, pods: s.pod} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { see(ctx, object) },
			UpdateFunc: func(_, object any) { see(ctx, object) }, // and on every heartbeat
		})
		if err != nil {
			return nil, err
		}
	}
	s.factory.Start(ctx.Done())
	return s, nil
}

// Hold keeps the NodePool's machines from coming up, or no longer. Those that are Ready stay so.
func (s *StandIn) Hold(nodePool string, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[nodePool] = held
}

// mayRun tells whether the Node is one of Karpenter's and its machine is up or may come up.
func (s *StandIn) mayRun(node *corev1.Node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return node.Labels[kwokLabel] != "" && (!s.held[node.Labels[karpv1.NodePoolLabelKey]] || byStandIn(node) != nil)
}

// byStandIn is the Ready condition that a StandIn wrote, or nil.
func byStandIn(node *corev1.Node) *corev1.NodeCondition {
	for i, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && condition.Reason == "StandIn" {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// node makes a Node Ready and renews that.
func (s *StandIn) node(ctx context.Context, object any) {
	node := object.(*corev1.Node)
	if !s.mayRun(node) || node.DeletionTimestamp != nil {
		return
	}
	now := metav1.Now()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "StandIn", LastHeartbeatTime: now, LastTransitionTime: now}
	if last := byStandIn(node); last != nil {
		if now.Sub(last.LastHeartbeatTime.Time) < heartbeat/2 {
			return
		}
		ready.LastTransitionTime = last.LastTransitionTime
	}
	patch, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{ready}}}) // always marshals
	_, _ = s.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// pod runs a pod that is bound to one of the Nodes, and ends one that is being deleted.
func (s *StandIn) pod(ctx context.Context, object any) {
	pod := object.(*corev1.Pod)
	if pod.Spec.NodeName == "" {
		return
	}
	if node, err := s.factory.Core().V1().Nodes().Lister().Get(pod.Spec.NodeName); err != nil || !s.mayRun(node) {
		return
	}
	switch {
	case pod.DeletionTimestamp != nil:
		time.AfterFunc(stopTime, func() {
			now := int64(0)
			_ = s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		})
	case pod.Status.Phase == corev1.PodPending:
		const running = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"},{"type":"ContainersReady","status":"True"}]}}`
		_, _ = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(running), metav1.PatchOptions{}, "status")
	}
}
