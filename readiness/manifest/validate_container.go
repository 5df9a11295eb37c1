package manifest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateContainers checks containers and init containers; volumes are the valid ones of the pod, by name.
func validateContainers(spec *corev1.PodSpec, volumes map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	at := path.Child("containers")
	if len(spec.Containers) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	grace := *spec.TerminationGracePeriodSeconds
	names, ports := sets.Set[string]{}, sets.Set[string]{}
	var errs field.ErrorList
	for i := range spec.Containers {
		c := &spec.Containers[i]
		errs = append(errs, validateContainer(c, spec, volumes, at.Index(i))...)
		errs = append(errs, unique(names, at.Index(i).Child("name"), c.Name)...)
		errs = append(errs, validateHandlers(c, grace, at.Index(i))...)
		errs = append(errs, validateHostPorts(c, ports, spec.HostNetwork, at.Index(i))...)
	}
	for i := range spec.InitContainers {
		c, at := &spec.InitContainers[i], path.Child("initContainers").Index(i)
		errs = append(errs, validateContainer(c, spec, volumes, at)...)
		errs = append(errs, unique(names, at.Child("name"), c.Name)...)
		// They run one by one.
		errs = append(errs, validateHostPorts(c, sets.Set[string]{}, false, at)...)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			errs = append(errs, validateHandlers(c, grace, at)...)
		} else {
			errs = append(errs, validateOnce(c, at)...)
		}
	}
	return errs
}

// validateOnce refuses what an init container that is no sidecar may not have: it runs once, to its end.
func validateOnce(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Lifecycle != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil {
		errs = append(errs, field.Forbidden(path, "probes and lifecycle may not be set for init containers without restartPolicy Always"))
	}
	for i, policy := range c.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer {
			at := path.Child("resizePolicy").Index(i).Child("restartPolicy")
			errs = append(errs, field.Invalid(at, policy.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers"))
		}
	}
	return errs
}

func validateContainer(c *corev1.Container, spec *corev1.PodSpec, volumes map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, invalid(path.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, oneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, oneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, validateEnv(c, volumes, path)...)
	errs = append(errs, validateMounts(c, volumes, path.Child("volumeMounts"))...)
	errs = append(errs, validateContainerResources(&c.Resources, path.Child("resources"))...)
	errs = append(errs, validateClaims(c.Resources.Claims, spec.ResourceClaims, path.Child("resources", "claims"))...)
	errs = append(errs, validateResize(c.ResizePolicy, spec.RestartPolicy, path.Child("resizePolicy"))...)
	return append(errs, validateSecurity(c.SecurityContext, path.Child("securityContext"))...)
}

func validatePorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i, port := range ports {
		at := path.Index(i)
		if port.Name != "" {
			if messages := validation.IsValidPortName(port.Name); len(messages) > 0 {
				errs = append(errs, invalid(at.Child("name"), port.Name, messages)...)
			} else {
				errs = append(errs, unique(names, at.Child("name"), port.Name)...)
			}
		}
		errs = append(errs, invalid(at.Child("containerPort"), port.ContainerPort, validation.IsValidPortNum(int(port.ContainerPort)))...)
		if port.HostPort != 0 {
			errs = append(errs, invalid(at.Child("hostPort"), port.HostPort, validation.IsValidPortNum(int(port.HostPort)))...)
		}
		errs = append(errs, oneOf(at.Child("protocol"), port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	return errs
}

func validateHostPorts(c *corev1.Container, taken sets.Set[string], hostNetwork bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, port := range c.Ports {
		at := path.Child("ports").Index(i).Child("hostPort")
		if hostNetwork && port.HostPort != port.ContainerPort {
			errs = append(errs, field.Invalid(at, port.HostPort, "must match containerPort when hostNetwork is true"))
		}
		if port.HostPort != 0 {
			errs = append(errs, unique(taken, at, fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort))...)
		}
	}
	return errs
}

func validateEnv(c *corev1.Container, volumes map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, env := range c.Env {
		at := path.Child("env").Index(i)
		if env.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, invalid(at.Child("name"), env.Name, validation.IsRelaxedEnvVarName(env.Name))...)
		}
		from := env.ValueFrom
		if from == nil {
			continue
		}
		sources := count(from.FieldRef != nil, from.ResourceFieldRef != nil, from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil, from.FileKeyRef != nil)
		if sources != 1 || env.Value != "" {
			errs = append(errs, field.Invalid(at.Child("valueFrom"), "", "must be the only source of the value, and have one"))
		}
		if from.FieldRef != nil {
			errs = append(errs, validateFieldRef(from.FieldRef, envFields, at.Child("valueFrom", "fieldRef"))...)
		}
		if from.ResourceFieldRef != nil {
			errs = append(errs, validateResourceRef(from.ResourceFieldRef, at.Child("valueFrom", "resourceFieldRef"))...)
		}
		if from.FileKeyRef != nil {
			errs = append(errs, validateFileRef(from.FileKeyRef, volumes, at.Child("valueFrom", "fileKeyRef"))...)
		}
	}
	return append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
}

// validateFileRef checks a variable that is read from a file: of an emptyDir, which a volume without any source is too.
func validateFileRef(ref *corev1.FileKeySelector, volumes map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), ""))
	} else {
		errs = append(errs, invalid(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key))...)
	}
	if ref.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	}
	errs = append(errs, noBacksteps(path.Child("path"), ref.Path)...)
	switch volume, there := volumes[ref.VolumeName]; {
	case ref.VolumeName == "":
		errs = append(errs, field.Required(path.Child("volumeName"), ""))
	case !there:
		errs = append(errs, field.NotFound(path.Child("volumeName"), ref.VolumeName))
	case volume.EmptyDir == nil && sources(&volume) > 0:
		errs = append(errs, field.Invalid(path.Child("volumeName"), ref.VolumeName, "referenced volume must be of type emptyDir"))
	}
	return errs
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, from := range sources {
		at := path.Index(i)
		if from.Prefix != "" {
			errs = append(errs, invalid(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix))...)
		}
		if count(from.ConfigMapRef != nil, from.SecretRef != nil) != 1 {
			errs = append(errs, field.Invalid(at, "", "must have one of configMapRef and secretRef"))
		}
	}
	return errs
}

func count(conditions ...bool) int {
	n := 0
	for _, condition := range conditions {
		if condition {
			n++
		}
	}
	return n
}

// Fields of a pod that the downward API serves.
var (
	envFields = sets.New("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.host",
		"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
	volumeFields = sets.New("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")
)

func validateFieldRef(ref *corev1.ObjectFieldSelector, fields sets.Set[string], path *field.Path) field.ErrorList {
	name, key, subscripted := strings.Cut(ref.FieldPath, "['")
	subscripted = subscripted && strings.HasSuffix(ref.FieldPath, "']") && name != ""
	switch {
	case ref.APIVersion != "" && ref.APIVersion != "v1":
		return field.ErrorList{field.NotSupported(path.Child("apiVersion"), ref.APIVersion, []string{"v1"})}
	case subscripted && name == "metadata.annotations":
		key = strings.ToLower(strings.TrimSuffix(key, "']"))
		return invalid(path.Child("fieldPath"), ref.FieldPath, validation.IsQualifiedName(key))
	case subscripted && name == "metadata.labels":
		return invalid(path.Child("fieldPath"), ref.FieldPath, validation.IsQualifiedName(strings.TrimSuffix(key, "']")))
	case !fields.Has(ref.FieldPath):
		return field.ErrorList{field.NotSupported(path.Child("fieldPath"), ref.FieldPath, sets.List(fields))}
	}
	return nil
}

// validateResourceRef checks which resource of a container the downward API is asked for; its divisor is not checked.
func validateResourceRef(ref *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	known := name == "cpu" || name == "memory" || name == "ephemeral-storage" || hugePages(name)
	if kind != "limits" && kind != "requests" || !known {
		return field.ErrorList{field.Invalid(path.Child("resource"), ref.Resource, "must be limits or requests of a standard resource")}
	}
	return nil
}

// validateResize refuses to restart containers of a pod that restarts none.
func validateResize(policies []corev1.ContainerResizePolicy, restart corev1.RestartPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i, policy := range policies {
		at := path.Index(i)
		if policy.ResourceName != corev1.ResourceCPU && policy.ResourceName != corev1.ResourceMemory {
			errs = append(errs, field.NotSupported(at, policy.ResourceName, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
		}
		if policy.RestartPolicy != corev1.NotRequired && policy.RestartPolicy != corev1.RestartContainer {
			errs = append(errs, field.NotSupported(at, policy.RestartPolicy, []corev1.ResourceResizeRestartPolicy{corev1.NotRequired, corev1.RestartContainer}))
		}
		if restart == corev1.RestartPolicyNever && policy.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(at, policy.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
		errs = append(errs, unique(names, at, string(policy.ResourceName))...)
	}
	return errs
}

func validateSecurity(security *corev1.SecurityContext, path *field.Path) field.ErrorList {
	if security == nil {
		return nil
	}
	errs := validateIDs(security.RunAsUser, security.RunAsGroup, path)
	privileged := security.Privileged != nil && *security.Privileged
	// The API compares the capability with this spelling only: SYS_ADMIN passes.
	admin := security.Capabilities != nil && slices.Contains(security.Capabilities.Add, "CAP_SYS_ADMIN")
	if escalation := security.AllowPrivilegeEscalation; escalation != nil && !*escalation && (privileged || admin) {
		errs = append(errs, field.Invalid(path, "", "cannot set `allowPrivilegeEscalation` to false for what is privileged or has CAP_SYS_ADMIN"))
	}
	if security.ProcMount != nil {
		errs = append(errs, oneOf(path.Child("procMount"), *security.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
	}
	return append(errs, validateSeccomp(security.SeccompProfile, path.Child("seccompProfile"))...)
}

// validateHandlers checks the probes and the lifecycle of a container that may have them. grace is the pod's
// terminationGracePeriodSeconds.
func validateHandlers(c *corev1.Container, grace int64, path *field.Path) field.ErrorList {
	errs := validateProbe(c.LivenessProbe, grace, true, path.Child("livenessProbe"))
	errs = append(errs, validateProbe(c.StartupProbe, grace, true, path.Child("startupProbe"))...)
	errs = append(errs, validateProbe(c.ReadinessProbe, grace, false, path.Child("readinessProbe"))...)
	if c.Lifecycle == nil {
		return errs
	}
	for name, h := range map[string]*corev1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
		if h != nil {
			errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, grace, path.Child("lifecycle", name))...)
		}
	}
	return errs
}

// handler is what probes and lifecycle hooks have in common.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

// validateProbe checks a probe; one that kills may not ask for several successes, one that does not has no grace period.
func validateProbe(p *corev1.Probe, grace int64, kills bool, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, grace, path)
	for _, n := range []int32{p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold} {
		if n < 0 {
			errs = append(errs, field.Invalid(path, n, "must not be negative"))
		}
	}
	period := p.TerminationGracePeriodSeconds
	switch {
	case period != nil && *period <= 0:
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *period, "must be greater than 0"))
	case period != nil && !kills:
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *period, "must not be set for readiness probes"))
	}
	if kills && p.SuccessThreshold > 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

func validateHandler(h handler, grace int64, path *field.Path) field.ErrorList {
	if count(h.exec != nil, h.http != nil, h.tcp != nil, h.grpc != nil, h.sleep != nil) != 1 {
		return field.ErrorList{field.Invalid(path, "", "must have exactly one handler")}
	}
	switch {
	case h.exec != nil && len(h.exec.Command) == 0:
		return field.ErrorList{field.Required(path.Child("exec", "command"), "")}
	case h.http != nil:
		errs := validatePort(h.http.Port, path.Child("httpGet", "port"))
		errs = append(errs, oneOf(path.Child("httpGet", "scheme"), h.http.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
		for _, header := range h.http.HTTPHeaders {
			errs = append(errs, invalid(path.Child("httpGet", "httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
		}
		return errs
	case h.tcp != nil:
		return validatePort(h.tcp.Port, path.Child("tcpSocket", "port"))
	case h.grpc != nil:
		return validatePort(intstr.FromInt32(h.grpc.Port), path.Child("grpc", "port"))
	case h.sleep != nil && (h.sleep.Seconds < 0 || h.sleep.Seconds > grace):
		return field.ErrorList{field.Invalid(path.Child("sleep", "seconds"), h.sleep.Seconds, "must not be negative, nor more than terminationGracePeriodSeconds")}
	}
	return nil
}

func validatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.Int {
		return invalid(path, port.IntVal, validation.IsValidPortNum(int(port.IntVal)))
	}
	return invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
}
