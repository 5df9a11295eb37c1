package manifest

import (
	corev1 "k8s.io/api/core/v1"
)

// apiReference names the kind of API object that the pod refers to, or "": a kubelet refuses static pods that do
// (HasAPIObjectReference of pkg/api/pod/util.go). A reference without a name is none.
func apiReference(pod *corev1.Pod) string {
	spec := &pod.Spec
	switch {
	case spec.ServiceAccountName != "":
		return "a ServiceAccount"
	case len(spec.ResourceClaims) > 0:
		return "a ResourceClaim"
	}
	for _, secret := range spec.ImagePullSecrets {
		if secret.Name != "" {
			return "a Secret (imagePullSecrets)"
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if reference := containerReference(&containers[i]); reference != "" {
				return reference
			}
		}
	}
	for i := range spec.Volumes {
		if reference := volumeReference(&spec.Volumes[i].VolumeSource); reference != "" {
			return reference
		}
	}
	return ""
}

func containerReference(c *corev1.Container) string {
	for _, from := range c.EnvFrom {
		switch {
		case from.SecretRef != nil: // without a name it is invalid
			return "a Secret (envFrom)"
		case from.ConfigMapRef != nil:
			return "a ConfigMap (envFrom)"
		}
	}
	for _, env := range c.Env {
		switch from := env.ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil && from.SecretKeyRef.Name != "":
			return "a Secret (env)"
		case from.ConfigMapKeyRef != nil && from.ConfigMapKeyRef.Name != "":
			return "a ConfigMap (env)"
		}
	}
	return ""
}

func volumeReference(v *corev1.VolumeSource) string {
	switch {
	case v.ConfigMap != nil:
		return "a ConfigMap (volume)"
	case v.Secret != nil:
		return "a Secret (volume)"
	case v.CSI != nil:
		return "a CSIDriver (volume)"
	case v.Glusterfs != nil:
		return "Endpoints (glusterfs volume)"
	case v.PersistentVolumeClaim != nil:
		return "a PersistentVolumeClaim (volume)"
	case v.Ephemeral != nil:
		return "a PersistentVolumeClaim (ephemeral volume)"
	case v.AzureFile != nil:
		return "a Secret (azureFile volume)"
	case secretOfVolume(v):
		return "a Secret (of a volume)"
	case v.Projected != nil:
		return projectedReference(v.Projected)
	}
	return ""
}

// secretOfVolume tells whether a volume of a kind that may do without one names a Secret.
func secretOfVolume(v *corev1.VolumeSource) bool {
	named := func(ref *corev1.LocalObjectReference) bool { return ref != nil && ref.Name != "" }
	switch {
	case v.CephFS != nil:
		return named(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return named(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return named(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		return named(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		return named(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return named(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return named(v.StorageOS.SecretRef)
	}
	return false
}

func projectedReference(projected *corev1.ProjectedVolumeSource) string {
	for _, source := range projected.Sources {
		switch {
		case source.ConfigMap != nil:
			return "a ConfigMap (projected volume)"
		case source.Secret != nil:
			return "a Secret (projected volume)"
		case source.ServiceAccountToken != nil:
			return "a ServiceAccount (projected volume)"
		case source.ClusterTrustBundle != nil:
			return "a ClusterTrustBundle (projected volume)"
		case source.PodCertificate != nil:
			return "a PodCertificateRequest (projected volume)"
		case source.DownwardAPI == nil:
			return "an unknown source (projected volume)"
		}
	}
	return ""
}
