package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateContainerResources checks what a container asks for, or the overhead of a pod.
func validateContainerResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	errs := validateResources(r, validateResourceName, path)
	computes, huge := false, false
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			computes = computes || name == corev1.ResourceCPU || name == corev1.ResourceMemory
			huge = huge || hugePages(string(name))
		}
	}
	if huge && !computes {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

// validatePodResources checks what a pod asks for as a whole. Huge pages alone are no mistake here: a kubelet without
// PodLevelResourcesFixDefaulting (beta in 1.37) gives the pod its containers' cpu and memory first.
func validatePodResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	errs := validateResources(r, validatePodResourceName, path)
	if r.Claims != nil { // an empty list is refused too
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	return errs
}

// validateClaims refuses claims that the pod does not declare; a pod that declares any is refused for it.
func validateClaims(claims []corev1.ResourceClaim, declared []corev1.PodResourceClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, claim := range claims {
		if !slices.ContainsFunc(declared, func(d corev1.PodResourceClaim) bool { return d.Name == claim.Name }) {
			errs = append(errs, field.NotFound(path.Index(i), claim.Name))
		}
	}
	return errs
}

// validateResources checks names, signs, and that requests do not exceed limits.
func validateResources(r *corev1.ResourceRequirements, validateName func(string, *field.Path) field.ErrorList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for kind, list := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for name, quantity := range list {
			at := path.Child(kind).Key(string(name))
			errs = append(errs, validateName(string(name), at)...)
			if quantity.Sign() < 0 {
				errs = append(errs, field.Invalid(at, quantity.String(), "must not be negative"))
			}
			if extended(string(name)) && quantity.MilliValue()%1000 != 0 {
				errs = append(errs, field.Invalid(at, quantity.String(), "must be an integer"))
			}
			if hugePages(string(name)) && !wholePages(string(name), quantity) {
				errs = append(errs, field.Invalid(at, quantity.String(), "is not positive integer multiple of "+string(name)))
			}
		}
	}
	for name, request := range r.Requests {
		at := path.Child("requests").Key(string(name))
		limit, limited := r.Limits[name]
		switch overcommits := !extended(string(name)) && !hugePages(string(name)); {
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(at, request.String(), "must be less than or equal to the limit of "+limit.String()))
		case limited && !overcommits && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(at, request.String(), "must be equal to the limit of "+limit.String()))
		case !limited && !overcommits:
			errs = append(errs, field.Required(path.Child("limits").Key(string(name)), "this resource cannot be overcommitted"))
		}
	}
	return errs
}

func validateResourceName(name string, path *field.Path) field.ErrorList {
	if messages := validation.IsQualifiedName(name); len(messages) > 0 {
		return invalid(path, name, messages)
	}
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return nil
	}
	if !strings.Contains(name, "/") && !hugePages(name) {
		return field.ErrorList{field.Invalid(path, name, "must be a standard resource for containers")}
	}
	return nil
}

func validatePodResourceName(name string, path *field.Path) field.ErrorList {
	if messages := validation.IsQualifiedName(name); len(messages) > 0 {
		return invalid(path, name, messages)
	}
	if name != string(corev1.ResourceCPU) && name != string(corev1.ResourceMemory) && !hugePages(name) {
		return field.ErrorList{field.NotSupported(path, name, []string{"cpu", corev1.ResourceHugePagesPrefix, "memory"})}
	}
	return nil
}

// wholePages tells whether an amount of huge pages is a multiple of the page size that the resource's name has
// (IsHugePageResourceValueDivisible of pkg/apis/core/helper).
func wholePages(name string, amount resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(name, corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return amount.Value()%size.Value() == 0
}

func hugePages(name string) bool { return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) }

// extended tells whether the resource is of a domain outside Kubernetes.
func extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}
