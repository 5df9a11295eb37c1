// Package leftovers owns what rollcall leaves in a cluster beside its installation: which annotations, conditions, records
// and Leases those are, and how they are taken away. It touches nothing that is not rollcall's, and no object of the
// installation itself.
package leftovers

import (
	"context"
	"encoding/json"
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
	// Condition is the type of the Node's condition; those that rollcall wrote last are found whatever their type is.
	Condition string
	// Taint is the key of the taint that holds new nodes.
	Taint string
	// LeaseNamespace and LeaseName are the controller's Lease. An empty namespace stands for all: as a sidecar the controller
	// has it in Karpenter's.
	LeaseNamespace, LeaseName string
}

// A Thing is an object that bears annotations of rollcall's.
type Thing struct {
	Namespace, Name string
	UID             types.UID
	Annotations     []string
}

// A Node is a Thing that may bear conditions too.
type Node struct {
	Thing
	// Conditions are the types of those that are rollcall's, sorted.
	Conditions []string
}

// Found is everything that was left at one moment.
type Found struct {
	Pods  []Thing
	Nodes []Node
	// Records is how many PodLoss objects each namespace has.
	Records map[string]int
	// Leases are the controllers'.
	Leases []coordinationv1.Lease
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
	for _, read := range []func(context.Context, informers.Clients, Names) error{found.pods, found.nodes, found.records, found.leases} {
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
			left.Conditions = conditions(node, names.Condition)
			if len(left.Annotations) > 0 || len(left.Conditions) > 0 {
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

func (f *Found) leases(ctx context.Context, clients informers.Clients, names Names) error {
	return pages(func(options metav1.ListOptions) (string, error) {
		options.FieldSelector = "metadata.name=" + names.LeaseName // every node has one, too
		list, err := clients.Typed.CoordinationV1().Leases(names.LeaseNamespace).List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("listing the Leases %s: %w", names.LeaseName, err)
		}
		f.Leases = append(f.Leases, list.Items...)
		return list.Continue, nil
	})
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

// managers are the field managers of the controller and of the agent.
var managers = []string{domain.FieldManager, domain.FieldManager + "-agent"}

// conditions returns the types of the Node's conditions that are rollcall's, sorted: of that name, or last written by it.
func conditions(node *corev1.Node, name string) (types []string) {
	written := writtenConditions(node.ManagedFields)
	for _, c := range node.Status.Conditions {
		if string(c.Type) == name || written[string(c.Type)] {
			types = append(types, string(c.Type))
		}
	}
	slices.Sort(types)
	return types
}

// writtenConditions are the types of the conditions whose status is rollcall's, as the API server keeps the account.
func writtenConditions(fields []metav1.ManagedFieldsEntry) map[string]bool {
	written := map[string]bool{}
	for _, entry := range fields {
		if !slices.Contains(managers, entry.Manager) || entry.FieldsV1 == nil {
			continue
		}
		var owned struct {
			Status struct {
				Conditions map[string]map[string]json.RawMessage `json:"f:conditions"`
			} `json:"f:status"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue // of another form than this build knows: the condition is still found by its name
		}
		for key, fields := range owned.Status.Conditions {
			var item struct{ Type string }
			if _, ok := fields["f:status"]; ok && json.Unmarshal([]byte(strings.TrimPrefix(key, "k:")), &item) == nil {
				written[item.Type] = true
			}
		}
	}
	return written
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
		c.Conditions += len(node.Conditions)
	}
	for _, n := range f.Records {
		c.Records += n
	}
	c.Leases = len(f.Leases)
	return c
}

// Leader is who holds a Lease at the time, and in which namespace; empty where nobody does.
func (f *Found) Leader(now time.Time) (namespace, holder string) {
	for i := range f.Leases {
		spec := f.Leases[i].Spec
		if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
			continue
		}
		if !now.After(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)) {
			return f.Leases[i].Namespace, *spec.HolderIdentity
		}
	}
	return "", ""
}
