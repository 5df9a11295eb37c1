// Package leftovers owns what rollcall leaves in a cluster beside its installation: which annotations, conditions, records
// and Leases those are, and how they are taken away. It touches nothing that is not rollcall's, and no object of the
// installation itself.
package leftovers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/informers"
)

// Names are what an installation may have chosen.
type Names struct {
	// Condition is the type of the Node's condition, Taint the key of the taint that holds new nodes.
	Condition, Taint string
	// LeaseNamespace and LeaseName are the controller's Lease.
	LeaseNamespace, LeaseName string
}

// A Thing is an object that bears annotations of rollcall's.
type Thing struct {
	Namespace, Name string
	UID             types.UID
	Annotations     []string
}

// A Node is a Thing that may bear the condition too.
type Node struct {
	Thing
	Condition bool
}

// Found is everything that was left at one moment.
type Found struct {
	Pods  []Thing
	Nodes []Node
	// Records is how many PodLoss objects each namespace has.
	Records map[string]int
	// Lease is the controller's, nil where there is none.
	Lease *coordinationv1.Lease
	// Held are the nodes that bear the readiness taint. It is not rollcall's: the kubelet or Karpenter put it there.
	Held []string
	// Agents are the pods of rollcall-agent that run: they write again what is taken away.
	Agents []string
}

// pageSize bounds one answer of a list.
const pageSize = 500

// Find reads the cluster.
func Find(ctx context.Context, clients informers.Clients, names Names) (*Found, error) {
	found := &Found{Records: map[string]int{}}
	for _, read := range []func(context.Context, informers.Clients, Names) error{found.pods, found.nodes, found.records, found.lease} {
		if err := read(ctx, clients, names); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (f *Found) pods(ctx context.Context, clients informers.Clients, _ Names) error {
	pods := clients.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	return pages(func(options metav1.ListOptions) (string, error) {
		list, err := pods.List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("listing pods: %w", err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if keys := own(pod.Annotations); len(keys) > 0 {
				f.Pods = append(f.Pods, Thing{pod.Namespace, pod.Name, pod.UID, keys})
			}
			if pod.DeletionTimestamp == nil && pod.Labels["app.kubernetes.io/name"] == "rollcall" && pod.Labels["app.kubernetes.io/component"] == "agent" {
				f.Agents = append(f.Agents, pod.Namespace+"/"+pod.Name)
			}
		}
		return list.Continue, nil
	})
}

func (f *Found) nodes(ctx context.Context, clients informers.Clients, names Names) error {
	return pages(func(options metav1.ListOptions) (string, error) {
		list, err := clients.Typed.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("listing nodes: %w", err)
		}
		for i := range list.Items {
			node := &list.Items[i]
			left := Node{Thing: Thing{Name: node.Name, UID: node.UID, Annotations: own(node.Annotations)}}
			left.Condition = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == names.Condition })
			if len(left.Annotations) > 0 || left.Condition {
				f.Nodes = append(f.Nodes, left)
			}
			if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == names.Taint }) {
				f.Held = append(f.Held, node.Name)
			}
		}
		return list.Continue, nil
	})
}

func (f *Found) records(ctx context.Context, clients informers.Clients, _ Names) error {
	records := clients.Metadata.Resource(v1alpha1.PodLosses)
	return pages(func(options metav1.ListOptions) (string, error) {
		list, err := records.List(ctx, options)
		if apierrors.IsNotFound(err) {
			return "", nil // PodLoss is not installed
		}
		if err != nil {
			return "", fmt.Errorf("listing podlosses: %w", err)
		}
		for i := range list.Items {
			f.Records[list.Items[i].Namespace]++
		}
		return list.Continue, nil
	})
}

func (f *Found) lease(ctx context.Context, clients informers.Clients, names Names) error {
	lease, err := clients.Typed.CoordinationV1().Leases(names.LeaseNamespace).Get(ctx, names.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Lease %s/%s: %w", names.LeaseNamespace, names.LeaseName, err)
	}
	f.Lease = lease
	return nil
}

// pages calls list until there is no further page.
func pages(list func(metav1.ListOptions) (next string, err error)) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		next, err := list(options)
		if err != nil || next == "" {
			return err
		}
		options.Continue = next
	}
}

// own returns the keys that are rollcall's, sorted.
func own(annotations map[string]string) (keys []string) {
	for key := range annotations {
		if strings.HasPrefix(key, domain.Name+"/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Counts is how much of each kind there is.
type Counts struct{ PodAnnotations, NodeAnnotations, Conditions, Records, Leases int }

// Counts counts what was found.
func (f *Found) Counts() Counts {
	var c Counts
	for _, pod := range f.Pods {
		c.PodAnnotations += len(pod.Annotations)
	}
	for _, node := range f.Nodes {
		c.NodeAnnotations += len(node.Annotations)
		if node.Condition {
			c.Conditions++
		}
	}
	for _, n := range f.Records {
		c.Records += n
	}
	if f.Lease != nil {
		c.Leases = 1
	}
	return c
}

// Leader is who holds the Lease at the time; empty where nobody does.
func (f *Found) Leader(now time.Time) string {
	if f.Lease == nil || f.Lease.Spec.HolderIdentity == nil || f.Lease.Spec.RenewTime == nil || f.Lease.Spec.LeaseDurationSeconds == nil {
		return ""
	}
	spec := f.Lease.Spec
	if now.After(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)) {
		return ""
	}
	return *spec.HolderIdentity
}
