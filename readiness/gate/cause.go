package gate

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Causes for which an API server refuses every mirror of a namespace.
const (
	NamespaceNotFound    = "NamespaceNotFound"
	NamespaceTerminating = "NamespaceTerminating"
)

const (
	// podSecurityLevel is the label with which a namespace chooses what Pod Security enforces (k8s.io/pod-security-admission).
	podSecurityLevel = "pod-security.kubernetes.io/enforce"
	// namespacesAsked bounds the requests for one node that is held for long.
	namespacesAsked = 8
)

// A cause is why mirrors of a namespace are not made, as far as the API tells anybody but the kubelet. Its reason is empty
// where it only may be why.
type cause struct{ namespace, reason, text string }

// causes asks for them. Only the kubelet hears what the API server says to its mirrors, and it keeps that in its log; to try
// the mirror in its place would need the right to create pods. The namespace is what can be looked at.
type causes struct {
	client  kubernetes.Interface
	refused func(verb, resource, namespace string, err error)
}

// of asks about the namespaces of the pods, given as namespace/name. What is known of one that cannot be read now stays.
func (c *causes) of(ctx context.Context, pods []string, known []cause) (found []cause) {
	var namespaces []string
	for _, pod := range pods {
		namespace, _, _ := strings.Cut(pod, "/")
		namespaces = append(namespaces, namespace)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	for _, name := range namespaces[:min(len(namespaces), namespacesAsked)] {
		namespace, err := c.read(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			found = append(found, cause{name, NamespaceNotFound, "namespace " + name + " does not exist"})
		case apierrors.IsForbidden(err):
			c.refused("get", "namespaces", name, err)
			return found
		case err != nil:
			found = append(found, of(known, name)...)
		case namespace.Status.Phase == corev1.NamespaceTerminating:
			found = append(found, cause{name, NamespaceTerminating, "namespace " + name + " is being deleted and takes no new pods"})
		default:
			if level := namespace.Labels[podSecurityLevel]; level != "" && level != "privileged" {
				found = append(found, cause{name, "", "namespace " + name + " enforces the Pod Security level " + level + ", which may refuse the mirror"})
			}
		}
	}
	return found
}

func (c *causes) read(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}

// of are the causes in the namespace.
func of(all []cause, namespace string) []cause {
	return slices.DeleteFunc(slices.Clone(all), func(c cause) bool { return c.namespace != namespace })
}

// causeIn is the reason of the cause in the namespace, or "".
func causeIn(all []cause, namespace string) string {
	if here := of(all, namespace); len(here) > 0 {
		return here[0].reason
	}
	return ""
}
