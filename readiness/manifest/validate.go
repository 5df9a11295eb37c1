package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// validate refuses what ValidatePodCreate (pkg/apis/core/validation) refuses, as far as these files go, and nothing that it
// accepts. An empty field that has a default is valid.
func validate(pod *corev1.Pod) field.ErrorList {
	spec, path := &pod.Spec, field.NewPath("spec")
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validateFinalizers(pod.Finalizers, field.NewPath("metadata", "finalizers"))...)
	volumes, volumeErrs := validateVolumes(spec.Volumes, path.Child("volumes"))
	errs = append(errs, volumeErrs...)
	errs = append(errs, validateContainers(spec, volumes, path)...)
	errs = append(errs, validateNames(spec, path)...)
	errs = append(errs, validatePolicies(spec, path)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validateTolerations(spec.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, validateAffinity(spec.Affinity, path.Child("affinity"))...)
	errs = append(errs, validateSpread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	errs = append(errs, validateAddresses(spec, path)...)
	errs = append(errs, validatePodSecurity(spec, path)...)
	if spec.Overhead != nil {
		errs = append(errs, validateContainerResources(&corev1.ResourceRequirements{Limits: spec.Overhead}, path.Child("overhead"))...)
	}
	errs = append(errs, validatePodResources(spec.Resources, path.Child("resources"))...)
	// Legal in a pod, but not in one that is created on a node.
	if len(spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if len(spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(path.Child("schedulingGates"), "cannot be set together with a node"))
	}
	return errs
}

// invalid makes an error of each message.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// oneOf refuses a value that is neither empty nor one of those allowed.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// validateFinalizers refuses names without a domain, but for Kubernetes' own; ValidateObjectMeta does the rest.
func validateFinalizers(finalizers []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range finalizers {
		switch name {
		case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
			continue
		}
		if !strings.Contains(name, "/") {
			errs = append(errs, field.Invalid(path.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

func validateNames(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, label := range []struct{ field, value string }{{"hostname", spec.Hostname}, {"subdomain", spec.Subdomain}} {
		if label.value != "" {
			errs = append(errs, invalid(path.Child(label.field), label.value, validation.IsDNS1123Label(label.value))...)
		}
	}
	subdomains := []struct{ field, value string }{
		{"nodeName", spec.NodeName}, {"priorityClassName", spec.PriorityClassName}, {"serviceAccountName", spec.ServiceAccountName},
	}
	for _, name := range subdomains {
		if name.value != "" {
			errs = append(errs, invalid(path.Child(name.field), name.value, validation.IsDNS1123Subdomain(name.value))...)
		}
	}
	if name := spec.RuntimeClassName; name != nil {
		errs = append(errs, invalid(path.Child("runtimeClassName"), *name, validation.IsDNS1123Subdomain(*name))...)
	}
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, invalid(path.Child("readinessGates").Index(i), gate.ConditionType, validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	return errs
}

func validatePolicies(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("restartPolicy"), spec.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	errs = append(errs, oneOf(path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	if policy := spec.PreemptionPolicy; policy != nil && *policy != corev1.PreemptLowerPriority && *policy != corev1.PreemptNever {
		errs = append(errs, field.NotSupported(path.Child("preemptionPolicy"), *policy, []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}))
	}
	if seconds := spec.ActiveDeadlineSeconds; seconds != nil && (*seconds < 1 || *seconds > 1<<31-1) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *seconds, validation.InclusiveRangeError(1, 1<<31-1)))
	}
	if spec.OS != nil && spec.OS.Name != corev1.Linux && spec.OS.Name != corev1.Windows {
		errs = append(errs, field.NotSupported(path.Child("os", "name"), spec.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows}))
	}
	return errs
}

func validateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when key is empty"))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty when operator is Exists"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt: // numbers are not checked
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		errs = append(errs, oneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	}
	return errs
}

// Limits of a resolver's configuration (pkg/apis/core/validation).
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

func validateAddresses(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	address := func(at *field.Path, ip string) {
		if netutils.ParseIPSloppy(ip) == nil {
			errs = append(errs, field.Invalid(at, ip, "must be an IP address"))
		}
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		address(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			errs = append(errs, invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	dns, at := spec.DNSConfig, path.Child("dnsConfig")
	if spec.DNSPolicy == corev1.DNSNone && (dns == nil || len(dns.Nameservers) == 0) {
		errs = append(errs, field.Required(at.Child("nameservers"), "dnsPolicy is None"))
	}
	if dns == nil {
		return errs
	}
	for i, server := range dns.Nameservers {
		address(at.Child("nameservers").Index(i), server)
	}
	if len(dns.Nameservers) > maxNameservers {
		errs = append(errs, field.TooMany(at.Child("nameservers"), len(dns.Nameservers), maxNameservers))
	}
	if len(dns.Searches) > maxSearches || len(strings.Join(dns.Searches, " ")) > maxSearchChars {
		errs = append(errs, field.Invalid(at.Child("searches"), len(dns.Searches), "too many or too long"))
	}
	for i, search := range dns.Searches {
		if search != "." {
			errs = append(errs, invalid(at.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(search, ".")))...)
		}
	}
	for i, option := range dns.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), ""))
		}
	}
	return errs
}

func validatePodSecurity(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "cannot be set together with hostPID"))
	}
	security, at := spec.SecurityContext, path.Child("securityContext")
	if security == nil {
		return errs
	}
	errs = append(errs, validateIDs(security.RunAsUser, security.RunAsGroup, at)...)
	if security.FSGroup != nil {
		errs = append(errs, invalid(at.Child("fsGroup"), *security.FSGroup, validation.IsValidGroupID(*security.FSGroup))...)
	}
	for i, group := range security.SupplementalGroups {
		errs = append(errs, invalid(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))...)
	}
	if policy := security.FSGroupChangePolicy; policy != nil {
		errs = append(errs, oneOf(at.Child("fsGroupChangePolicy"), *policy, corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways)...)
	}
	return append(errs, validateSeccomp(security.SeccompProfile, at.Child("seccompProfile"))...)
}

func validateIDs(user, group *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if user != nil {
		errs = append(errs, invalid(path.Child("runAsUser"), *user, validation.IsValidUserID(*user))...)
	}
	if group != nil {
		errs = append(errs, invalid(path.Child("runAsGroup"), *group, validation.IsValidGroupID(*group))...)
	}
	return errs
}

func validateSeccomp(profile *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if profile == nil {
		return nil
	}
	types := []corev1.SeccompProfileType{corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined}
	switch local := profile.Type == corev1.SeccompProfileTypeLocalhost; {
	case !slices.Contains(types, profile.Type):
		return field.ErrorList{field.NotSupported(path.Child("type"), profile.Type, types)}
	case local && profile.LocalhostProfile == nil:
		return field.ErrorList{field.Required(path.Child("localhostProfile"), "type is Localhost")}
	case local:
		return descending(path.Child("localhostProfile"), *profile.LocalhostProfile)
	case profile.LocalhostProfile != nil:
		return field.ErrorList{field.Invalid(path.Child("localhostProfile"), *profile.LocalhostProfile, "type is not Localhost")}
	}
	return nil
}

// unique reports a value that was seen before; empty ones are reported elsewhere.
func unique(seen sets.Set[string], path *field.Path, value string) field.ErrorList {
	if value != "" && seen.Has(value) {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen.Insert(value)
	return nil
}
