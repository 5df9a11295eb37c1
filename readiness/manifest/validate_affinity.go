package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateAffinity checks affinity to nodes and to pods, but for what the API came to refuse later than the rest, so that an
// older kubelet may run it: the values that a required term compares labels of nodes with, and matchLabelKeys.
func validateAffinity(affinity *corev1.Affinity, path *field.Path) field.ErrorList {
	if affinity == nil {
		return nil
	}
	errs := validateNodeAffinity(affinity.NodeAffinity, path.Child("nodeAffinity"))
	if pods := affinity.PodAffinity; pods != nil {
		errs = append(errs, validatePodTerms(pods.RequiredDuringSchedulingIgnoredDuringExecution, pods.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if pods := affinity.PodAntiAffinity; pods != nil {
		errs = append(errs, validatePodTerms(pods.RequiredDuringSchedulingIgnoredDuringExecution, pods.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

// Where the two kinds of terms are.
const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func validateNodeAffinity(affinity *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	if affinity == nil {
		return nil
	}
	var errs field.ErrorList
	if selector := affinity.RequiredDuringSchedulingIgnoredDuringExecution; selector != nil {
		at := path.Child(required, "nodeSelectorTerms")
		if len(selector.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(at, "must have at least one node selector term"))
		}
		for i := range selector.NodeSelectorTerms {
			errs = append(errs, validateNodeTerm(&selector.NodeSelectorTerms[i], at.Index(i))...)
		}
	}
	for i, term := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child(preferred).Index(i)
		errs = append(errs, validateWeight(term.Weight, at.Child("weight"))...)
		errs = append(errs, validateNodeTerm(&term.Preference, at.Child("preference"))...)
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(path, weight, "must be in the range 1-100")}
	}
	return nil
}

// validateNodeTerm takes a term without any requirement for valid: it selects nothing.
func validateNodeTerm(term *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
		switch values := len(r.Values); r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if values == 0 {
				errs = append(errs, field.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if values > 0 {
				errs = append(errs, field.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if values != 1 {
				errs = append(errs, field.Required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
	}
	for i, r := range term.MatchFields {
		errs = append(errs, validateNodeField(r, path.Child("matchFields").Index(i))...)
	}
	return errs
}

// validateNodeField checks a requirement of a node's field, of which its name is the only one.
func validateNodeField(r corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	case len(r.Values) != 1:
		errs = append(errs, field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, name := range r.Values {
		errs = append(errs, invalid(path.Child("values").Index(i), name, validation.IsDNS1123Subdomain(name))...)
	}
	return errs
}

func validatePodTerms(terms []corev1.PodAffinityTerm, weighted []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		errs = append(errs, validatePodTerm(&terms[i], path.Child(required).Index(i))...)
	}
	for i := range weighted {
		at := path.Child(preferred).Index(i)
		errs = append(errs, validateWeight(weighted[i].Weight, at.Child("weight"))...)
		errs = append(errs, validatePodTerm(&weighted[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodTerm(term *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	options := metavalidation.LabelSelectorValidationOptions{}
	errs := metavalidation.ValidateLabelSelector(term.LabelSelector, options, path.Child("labelSelector"))
	errs = append(errs, metavalidation.ValidateLabelSelector(term.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	for i, name := range term.Namespaces {
		errs = append(errs, invalid(path.Child("namespaces").Index(i), name, validation.IsDNS1123Label(name))...)
	}
	if term.TopologyKey == "" {
		return append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(term.TopologyKey, path.Child("topologyKey"))...)
}

// validateSpread checks topologySpreadConstraints but for matchLabelKeys. A topologyKey may be any text.
func validateSpread(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type kind struct {
		topologyKey       string
		whenUnsatisfiable corev1.UnsatisfiableConstraintAction
	}
	var seen []kind
	actions := []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}
	for i, c := range constraints {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		if !slices.Contains(actions, c.WhenUnsatisfiable) {
			errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, actions))
		}
		this := kind{c.TopologyKey, c.WhenUnsatisfiable}
		if slices.Contains(seen, this) {
			errs = append(errs, field.Duplicate(at, this.topologyKey))
		}
		seen = append(seen, this)
		errs = append(errs, validateSpreadPolicies(&c, at)...)
	}
	return errs
}

func validateSpreadPolicies(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelSelector(c.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, path.Child("labelSelector"))
	if c.MinDomains != nil && (*c.MinDomains <= 0 || c.WhenUnsatisfiable != corev1.DoNotSchedule) {
		errs = append(errs, field.Invalid(path.Child("minDomains"), *c.MinDomains, "must be greater than zero, and whenUnsatisfiable DoNotSchedule"))
	}
	policies := []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor}
	if policy := c.NodeAffinityPolicy; policy != nil && !slices.Contains(policies, *policy) {
		errs = append(errs, field.NotSupported(path.Child("nodeAffinityPolicy"), *policy, policies))
	}
	if policy := c.NodeTaintsPolicy; policy != nil && !slices.Contains(policies, *policy) {
		errs = append(errs, field.NotSupported(path.Child("nodeTaintsPolicy"), *policy, policies))
	}
	return errs
}
