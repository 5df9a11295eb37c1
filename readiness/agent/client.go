package agent

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Client is an API server that knows one kind of thing: the core group. The full clientset would bring every kind of
// Kubernetes into the agent's memory.
type Client struct {
	node string
	rest rest.Interface
}

var _ API = (*Client)(nil)

// NewClient makes a Client for one node. It keeps config, which must not be changed afterwards.
func NewClient(config *rest.Config, node string) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.APIPath = "/api"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1 // there is one node, and writes back off
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{node: node, rest: client}, nil
}

// WatchNode implements API.
func (c *Client) WatchNode(ctx context.Context, changed func(*corev1.Node), failed func(error)) {
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, c.node)
	c.watch(ctx, "nodes", name, &corev1.Node{}, trimNode, failed, func(store cache.Store) {
		object, there, err := store.GetByKey(c.node)
		if err != nil || !there {
			changed(nil)
			return
		}
		changed(object.(*corev1.Node))
	})
}

// WatchPods implements API.
func (c *Client) WatchPods(ctx context.Context, changed func([]*corev1.Pod), failed func(error)) {
	here := fields.OneTermEqualSelector("spec.nodeName", c.node)
	c.watch(ctx, "pods", here, &corev1.Pod{}, trimPod, failed, func(store cache.Store) {
		objects := store.List()
		pods := make([]*corev1.Pod, 0, len(objects))
		for _, object := range objects {
			pods = append(pods, object.(*corev1.Pod))
		}
		changed(pods)
	})
}

// watch calls changed once the objects are there, and after every change, one call at a time.
func (c *Client) watch(ctx context.Context, resource string, selector fields.Selector, kind runtime.Object,
	trim cache.TransformFunc, failed func(error), changed func(cache.Store)) {
	informer := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(c.rest, resource, metav1.NamespaceAll, selector), kind, 0, nil)
	// Both fail only on an informer that runs.
	_ = informer.SetTransform(trim)
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			failed(err)
		}
	})
	wake := make(chan struct{}, 1)
	touch := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { touch() },
		UpdateFunc: func(any, any) { touch() },
		DeleteFunc: func(any) { touch() },
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return
	}
	for {
		changed(informer.GetStore())
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
	}
}

// trimNode drops what fills a Node and nobody here reads.
func trimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.Status.Images = nil
		node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	}
	return object, nil
}

// trimPod keeps what decides about a mirror; of an ordinary pod, that it is there.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
	hash, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	if !mirror {
		return kept, nil
	}
	kept.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
	kept.OwnerReferences, kept.DeletionTimestamp = pod.OwnerReferences, pod.DeletionTimestamp
	kept.Status.Phase = pod.Status.Phase
	kept.Spec.NodeName, kept.Spec.Overhead, kept.Spec.Resources = pod.Spec.NodeName, pod.Spec.Overhead, pod.Spec.Resources
	kept.Spec.Containers, kept.Spec.InitContainers = trimContainers(pod.Spec.Containers), trimContainers(pod.Spec.InitContainers)
	return kept, nil
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(containers))
	for i, c := range containers {
		kept[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return kept
}

// GetNode implements API.
func (c *Client) GetNode(ctx context.Context) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.rest.Get().Resource("nodes").Name(c.node).Do(ctx).Into(node)
	return node, err
}

// ApplyStatus implements API.
func (c *Client) ApplyStatus(ctx context.Context, manager string, body []byte) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.rest.Patch(types.ApplyPatchType).Resource("nodes").Name(c.node).SubResource("status").
		Param("fieldManager", manager).Param("force", "true").Body(body).Do(ctx).Into(node)
	return node, err
}

// CreateEvent implements API.
func (c *Client) CreateEvent(ctx context.Context, event *corev1.Event) error {
	return c.rest.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
}
