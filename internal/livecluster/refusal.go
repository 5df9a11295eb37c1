package livecluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Refusal is a ValidatingAdmissionPolicy of the core group's resources.
type Refusal struct {
	Name      string
	Operation admissionv1.OperationType
	Resource  string // plural, such as pods
	// Allowed is the CEL expression that a request has to satisfy.
	Allowed string
}

// message is how a refused request can be told from others.
func (r *Refusal) message() string { return "refused by " + r.Name }

// Refuse makes the API server refuse, and waits until it does, which is a moment after the policy is made: attempt sends a
// request that changes nothing (a dry run) and has to be refused.
func (c *Cluster) Refuse(ctx context.Context, r Refusal, attempt func(context.Context, kubernetes.Interface) error) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	policies := client.AdmissionregistrationV1()
	if _, err := policies.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{r.Operation},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{r.Resource}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: r.Allowed, Message: r.message()}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the admission policy %s: %w", r.Name, err)
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: r.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding the admission policy %s: %w", r.Name, err)
	}
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = attempt(ctx, client)
		return last != nil && strings.Contains(last.Error(), r.message()), nil
	}); err != nil {
		return fmt.Errorf("waiting for the admission policy %s to refuse: %w (last answer: %v)", r.Name, err, last)
	}
	return nil
}

// Allow takes a Refusal away, if it is there.
func (c *Cluster) Allow(ctx context.Context, name string) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	policies := client.AdmissionregistrationV1()
	var errs []error
	for _, err := range []error{
		policies.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}),
		policies.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("deleting the admission policy %s: %w", name, err)
	}
	return nil
}

// RefuseMirrors makes the API server refuse every mirror pod in the namespace, until Allow(name).
func (c *Cluster) RefuseMirrors(ctx context.Context, name, namespace string) error {
	mirror := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mirror", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"}},
		Spec:       corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}
	return c.Refuse(ctx, Refusal{
		Name: name, Operation: admissionv1.Create, Resource: "pods",
		Allowed: fmt.Sprintf("object.metadata.namespace != %q || !(%q in object.metadata.?annotations.orValue({}))", namespace, corev1.MirrorPodAnnotationKey),
	}, func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, mirror, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}
