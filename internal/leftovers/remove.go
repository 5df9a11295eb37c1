package leftovers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/informers"
)

// Remove takes away what was found. What is gone meanwhile, or was made again under its name, is left alone. It goes on
// after an error and returns all of them.
func (f *Found) Remove(ctx context.Context, clients informers.Clients) error {
	var errs []error
	note := func(what string, err error) {
		if err != nil && !otherObject(err) {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	pods := clients.Typed.CoreV1()
	for _, pod := range f.Pods {
		_, err := pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, pod.patch(), metav1.PatchOptions{}, "status")
		note(fmt.Sprintf("cleaning pod %s/%s", pod.Namespace, pod.Name), err)
	}
	for _, node := range f.Nodes {
		_, err := clients.Typed.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, node.patch(), metav1.PatchOptions{}, "status")
		note("cleaning node "+node.Name, err)
	}
	records := clients.Dynamic.Resource(v1alpha1.PodLosses)
	for namespace := range f.Records {
		note("deleting the records of namespace "+namespace, records.Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	for i := range f.Leases {
		lease := &f.Leases[i]
		err := clients.Typed.CoordinationV1().Leases(lease.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
		note(fmt.Sprintf("deleting the Lease %s/%s", lease.Namespace, lease.Name), err)
	}
	return errors.Join(errs...)
}

// otherObject tells that the object is gone, or that another one bears its name: the API server answers a patch with another
// UID with 409 or 422.
func otherObject(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}

// patch takes the annotations away, of this object only. Through the status subresource, as they were written.
func (t Thing) patch() []byte { return encode(map[string]any{"metadata": t.metadata()}) }

func (t Thing) metadata() map[string]any {
	annotations := map[string]any{}
	for _, key := range t.Annotations {
		annotations[key] = nil
	}
	return map[string]any{"uid": t.UID, "annotations": annotations}
}

// patch takes the conditions away as well, by their types: the list is merged by them.
func (n Node) patch() []byte {
	patch := map[string]any{"metadata": n.metadata()}
	var conditions []any
	for _, condition := range n.Conditions {
		conditions = append(conditions, map[string]any{"$patch": "delete", "type": condition})
	}
	if len(conditions) > 0 {
		patch["status"] = map[string]any{"conditions": conditions}
	}
	return encode(patch)
}

// encode never fails: maps of strings are always JSON.
func encode(patch map[string]any) []byte {
	text, err := json.Marshal(patch)
	if err != nil {
		panic(err)
	}
	return text
}
