package manifest

import (
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateVolumes returns the valid volumes by name as well.
func validateVolumes(volumes []corev1.Volume, at *field.Path) (map[string]corev1.VolumeSource, field.ErrorList) {
	valid := map[string]corev1.VolumeSource{}
	names := sets.Set[string]{}
	var all field.ErrorList
	for i := range volumes {
		v := &volumes[i]
		errs := validateVolume(&v.VolumeSource, at.Index(i))
		if v.Name == "" {
			errs = append(errs, field.Required(at.Index(i).Child("name"), ""))
		} else {
			errs = append(errs, invalid(at.Index(i).Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		if names.Has(v.Name) {
			errs = append(errs, field.Duplicate(at.Index(i).Child("name"), v.Name))
		}
		if len(errs) == 0 {
			names.Insert(v.Name)
			valid[v.Name] = v.VolumeSource
		}
		all = append(all, errs...)
	}
	return valid, all
}

// validateVolume checks the sources that a static pod commonly has; a volume without any is an emptyDir. Those that refer
// to API objects are refused anyway.
func validateVolume(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	if sources(v) > 1 {
		return field.ErrorList{field.Forbidden(at, "may not specify more than 1 volume type")}
	}
	switch {
	case v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() < 0:
		return field.ErrorList{field.Forbidden(at.Child("emptyDir", "sizeLimit"), "must not be negative")}
	case v.HostPath != nil:
		return validateHostPath(v.HostPath, at.Child("hostPath"))
	case v.NFS != nil && (v.NFS.Server == "" || !path.IsAbs(v.NFS.Path)):
		return field.ErrorList{field.Invalid(at.Child("nfs"), v.NFS.Path, "must have a server and an absolute path")}
	case v.DownwardAPI != nil:
		errs := validateMode(v.DownwardAPI.DefaultMode, at.Child("downwardAPI", "defaultMode"))
		return append(errs, validateDownwardFiles(v.DownwardAPI.Items, at.Child("downwardAPI", "items"))...)
	case v.Projected != nil:
		errs := validateMode(v.Projected.DefaultMode, at.Child("projected", "defaultMode"))
		return append(errs, validateProjected(v.Projected, at.Child("projected", "sources"))...)
	case v.Image != nil && v.Image.Reference == "":
		return field.ErrorList{field.Required(at.Child("image", "reference"), "")}
	case v.Image != nil:
		return oneOf(at.Child("image", "pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	return nil
}

// sources counts the kinds of source that a volume has: all fields are pointers.
func sources(v *corev1.VolumeSource) int {
	n := 0
	value := reflect.ValueOf(v).Elem()
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			n++
		}
	}
	return n
}

var hostPathTypes = []corev1.HostPathType{
	corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
	corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev,
}

func validateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := noBacksteps(at.Child("path"), h.Path)
	if h.Type != nil && !slices.Contains(hostPathTypes, *h.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), *h.Type, hostPathTypes))
	}
	return errs
}

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal)")}
	}
	return nil
}

func validateDownwardFiles(files []corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, file := range files {
		at := path.Index(i)
		switch {
		case file.Path == "":
			errs = append(errs, field.Required(at.Child("path"), ""))
		case strings.HasPrefix(file.Path, ".."):
			errs = append(errs, field.Invalid(at.Child("path"), file.Path, "must not start with '..'"))
		default:
			errs = append(errs, descending(at.Child("path"), file.Path)...)
		}
		if count(file.FieldRef != nil, file.ResourceFieldRef != nil) != 1 {
			errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef"))
		} else if file.FieldRef != nil {
			errs = append(errs, validateFieldRef(file.FieldRef, volumeFields, at.Child("fieldRef"))...)
		} else {
			// A variable may leave it out and mean its own container; a volume is no container's.
			if file.ResourceFieldRef.ContainerName == "" {
				errs = append(errs, field.Required(at.Child("resourceFieldRef", "containerName"), ""))
			}
			errs = append(errs, validateResourceRef(file.ResourceFieldRef, at.Child("resourceFieldRef"))...)
		}
		errs = append(errs, validateMode(file.Mode, at.Child("mode"))...)
	}
	return errs
}

func validateProjected(projected *corev1.ProjectedVolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := sets.Set[string]{}
	for i, source := range projected.Sources {
		at := path.Index(i)
		if count(source.Secret != nil, source.ConfigMap != nil, source.DownwardAPI != nil, source.ServiceAccountToken != nil,
			source.ClusterTrustBundle != nil, source.PodCertificate != nil) > 1 {
			errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type per source"))
		}
		if source.DownwardAPI == nil {
			continue
		}
		errs = append(errs, validateDownwardFiles(source.DownwardAPI.Items, at.Child("downwardAPI", "items"))...)
		for _, file := range source.DownwardAPI.Items {
			errs = append(errs, unique(paths, at, file.Path)...)
		}
	}
	return errs
}

func validateMounts(c *corev1.Container, volumes map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	points := sets.Set[string]{}
	for i, mount := range c.VolumeMounts {
		at := path.Index(i)
		if _, there := volumes[mount.Name]; !there {
			errs = append(errs, field.NotFound(at.Child("name"), mount.Name))
		}
		if mount.MountPath == "" {
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		}
		errs = append(errs, unique(points, at.Child("mountPath"), mount.MountPath)...)
		if mount.SubPath != "" && mount.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, descending(at.Child("subPath"), mount.SubPath)...)
		errs = append(errs, descending(at.Child("subPathExpr"), mount.SubPathExpr)...)
		errs = append(errs, validatePropagation(c, mount, at.Child("mountPropagation"))...)
		errs = append(errs, validateRecursiveReadOnly(mount, at.Child("recursiveReadOnly"))...)
	}
	for i, device := range c.VolumeDevices {
		// Only claims may be devices, and a static pod has none.
		errs = append(errs, field.Invalid(path.Root().Child("volumeDevices").Index(i), device.Name, "can only use a PersistentVolumeClaim"))
	}
	return errs
}

func validatePropagation(c *corev1.Container, mount corev1.VolumeMount, at *field.Path) field.ErrorList {
	if mount.MountPropagation == nil {
		return nil
	}
	modes := []corev1.MountPropagationMode{corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone}
	privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	switch mode := *mount.MountPropagation; {
	case !slices.Contains(modes, mode):
		return field.ErrorList{field.NotSupported(at, mode, modes)}
	case mode == corev1.MountPropagationBidirectional && !privileged:
		return field.ErrorList{field.Forbidden(at, "Bidirectional is available only to privileged containers")}
	}
	return nil
}

func validateRecursiveReadOnly(mount corev1.VolumeMount, at *field.Path) field.ErrorList {
	if mount.RecursiveReadOnly == nil {
		return nil
	}
	modes := []corev1.RecursiveReadOnlyMode{corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled}
	propagates := mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone
	switch mode := *mount.RecursiveReadOnly; {
	case !slices.Contains(modes, mode):
		return field.ErrorList{field.NotSupported(at, mode, modes)}
	case mode != corev1.RecursiveReadOnlyDisabled && (!mount.ReadOnly || propagates):
		return field.ErrorList{field.Forbidden(at, "may only be specified when readOnly is true and nothing propagates")}
	}
	return nil
}

// descending refuses paths that are not below where they are used.
func descending(at *field.Path, target string) field.ErrorList {
	if path.IsAbs(target) {
		return field.ErrorList{field.Invalid(at, target, "must be a relative path")}
	}
	return noBacksteps(at, target)
}

func noBacksteps(at *field.Path, target string) field.ErrorList {
	if slices.Contains(strings.Split(target, "/"), "..") {
		return field.ErrorList{field.Invalid(at, target, "must not contain '..'")}
	}
	return nil
}
