package truth

import (
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// A ledger remembers every pod and Job of one namespace as last seen, those that are gone too: by UID, since a
// StatefulSet's pod comes back under its name, and more than once (facts/fate-truth.md T1).
type ledger struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
	jobs map[types.UID]*batchv1.Job
	gone map[types.UID]bool
}

// newLedger returns once the first lists are in; it watches until stop is closed.
func newLedger(client kubernetes.Interface, namespace string, stop <-chan struct{}) (*ledger, error) {
	l := &ledger{pods: map[types.UID]*corev1.Pod{}, jobs: map[types.UID]*batchv1.Job{}, gone: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().Pods().Informer(), factory.Batch().V1().Jobs().Informer()} {
		if _, err := informer.AddEventHandler(l.handler()); err != nil {
			return nil, err
		}
	}
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	return l, nil
}

func (l *ledger) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: l.enter,
		UpdateFunc: func(old, now any) {
			if before := old.(metav1.Object); before.GetUID() != now.(metav1.Object).GetUID() {
				l.strike(old)
			}
			l.enter(now)
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			l.enter(object)
			l.strike(object)
		},
	}
}

func (l *ledger) enter(object any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Pod:
		l.pods[o.UID] = o
	case *batchv1.Job:
		l.jobs[o.UID] = o
	}
}

func (l *ledger) strike(object any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone[object.(metav1.Object).GetUID()] = true
}

func (l *ledger) exists(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[uid] != nil && !l.gone[uid]
}

// pod returns the pod as last seen, or nil where there never was one.
func (l *ledger) pod(uid types.UID) *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[uid]
}

// living returns the pods that exist and that keep lets through.
func (l *ledger) living(keep func(*corev1.Pod) bool) []*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pods []*corev1.Pod
	for uid, pod := range l.pods {
		if !l.gone[uid] && keep(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// complete says whether the Job of this UID has ended well.
func (l *ledger) complete(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := l.jobs[uid]
	if job == nil {
		return false
	}
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
