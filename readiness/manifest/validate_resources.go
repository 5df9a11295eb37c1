package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateResources checks names, signs, and that requests do not exceed limits.
func validateResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, list := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for resource, quantity := range list {
			at := path.Child(name).Key(string(resource))
			errs = append(errs, validateResourceName(string(resource), at)...)
			if quantity.Sign() < 0 {
				errs = append(errs, field.Invalid(at, quantity.String(), "must not be negative"))
			}
			if extended(string(resource)) && quantity.MilliValue()%1000 != 0 {
				errs = append(errs, field.Invalid(at, quantity.String(), "must be an integer"))
			}
		}
	}
	for resource, request := range r.Requests {
		at := path.Child("requests").Key(string(resource))
		limit, limited := r.Limits[resource]
		switch overcommits := !extended(string(resource)) && !hugePages(string(resource)); {
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(at, request.String(), "must be less than or equal to the limit of "+limit.String()))
		case limited && !overcommits && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(at, request.String(), "must be equal to the limit of "+limit.String()))
		case !limited && !overcommits:
			errs = append(errs, field.Required(path.Child("limits").Key(string(resource)), "this resource cannot be overcommitted"))
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

func hugePages(name string) bool { return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) }

// extended tells whether the resource is of a domain outside Kubernetes.
func extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}
