package losses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

const (
	// tokenPath is where the ServiceAccount admission plugin mounts a pod's token
	// (k8s.io/kubernetes plugin/pkg/admission/serviceaccount/admission.go DefaultAPITokenMountPath).
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" // #nosec G101 -- a path
	// tokenVolume is how the plugin begins the names of the volumes that it makes.
	tokenVolume = "kube-api-access-"
	// limitRanger is the annotation in which the LimitRanger plugin says what it filled in.
	limitRanger = "kubernetes.io/limit-ranger"
	// defaultTolerationSeconds is what the DefaultTolerationSeconds plugin gives every pod
	// (k8s.io/kubernetes plugin/pkg/admission/defaulttolerationseconds).
	defaultTolerationSeconds = 300
)

// Manifest is the pod as somebody would apply it to have it again: what the server, its admission plugins and rollcall
// added is gone, and so is where it ran. What was only filled in with defaults stays; it does no harm. The pod is not
// changed.
func Manifest(pod *unstructured.Unstructured) (json.RawMessage, error) {
	p := pod.DeepCopy()
	spec, ok, err := unstructured.NestedMap(p.Object, "spec")
	if err != nil || !ok {
		return nil, fmt.Errorf("pod %s/%s has no spec", pod.GetNamespace(), pod.GetName())
	}
	// 1. What says where and how far it ran, and what admission computes and refuses to be told otherwise: Priority,
	//    RuntimeClass. Ephemeral containers cannot be there at the start.
	for _, field := range []string{"nodeName", "serviceAccount", "priority", "preemptionPolicy", "overhead", "ephemeralContainers"} {
		delete(spec, field)
	}
	// 2. What admission adds again.
	dropTokens(spec)
	dropDefaultTolerations(spec)
	clean := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": cleanMetadata(p), "spec": spec}
	text, err := json.Marshal(clean)
	if err != nil {
		return nil, fmt.Errorf("writing the manifest of pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
	}
	return text, nil
}

// cleanMetadata keeps what a person writes: the name, labels, annotations, and finalizers but those of a deletion.
func cleanMetadata(p *unstructured.Unstructured) map[string]any {
	meta := map[string]any{"name": p.GetName(), "namespace": p.GetNamespace()}
	annotations := p.GetAnnotations()
	for _, key := range []string{domain.AtRisk, corev1.LastAppliedConfigAnnotation, limitRanger} {
		delete(annotations, key)
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if labels := p.GetLabels(); len(labels) > 0 {
		meta["labels"] = labels
	}
	finalizers := slices.DeleteFunc(p.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
	if len(finalizers) > 0 {
		meta["finalizers"] = finalizers
	}
	return meta
}

// dropTokens removes the volumes with the service account's token that were not in the manifest, and their mounts. One that
// somebody mounts elsewhere too is needed.
func dropTokens(spec map[string]any) {
	account, _ := spec["serviceAccountName"].(string)
	needed := mountedElsewhere(spec)
	injected := map[string]bool{}
	filter(spec, "volumes", func(volume map[string]any) bool {
		name, _ := volume["name"].(string)
		_, secret := volume["secret"]
		_, projected := volume["projected"]
		// 1. A projected volume, since Kubernetes 1.22. 2. A Secret, before it.
		injected[name] = !needed[name] && (projected && strings.HasPrefix(name, tokenVolume) ||
			secret && account != "" && strings.HasPrefix(name, account+"-token-"))
		return injected[name]
	})
	for _, container := range containers(spec) {
		filter(container, "volumeMounts", func(mount map[string]any) bool {
			name, _ := mount["name"].(string)
			return injected[name]
		})
	}
}

// mountedElsewhere has the volumes with a mount at another path than a token's.
func mountedElsewhere(spec map[string]any) map[string]bool {
	names := map[string]bool{}
	for _, container := range containers(spec) {
		mounts, _ := container["volumeMounts"].([]any)
		for _, m := range mounts {
			mount, _ := m.(map[string]any)
			if name, _ := mount["name"].(string); mount["mountPath"] != tokenPath {
				names[name] = true
			}
		}
	}
	return names
}

func containers(spec map[string]any) (all []map[string]any) {
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := spec[field].([]any)
		for _, c := range list {
			if container, ok := c.(map[string]any); ok {
				all = append(all, container)
			}
		}
	}
	return all
}

func dropDefaultTolerations(spec map[string]any) {
	filter(spec, "tolerations", func(t map[string]any) bool {
		seconds, _ := t["tolerationSeconds"].(int64)
		return (t["key"] == corev1.TaintNodeNotReady || t["key"] == corev1.TaintNodeUnreachable) &&
			t["operator"] == string(corev1.TolerationOpExists) && t["effect"] == string(corev1.TaintEffectNoExecute) &&
			seconds == defaultTolerationSeconds
	})
}

// filter removes the items of the list under the key that drop says, and the list once it is empty.
func filter(object map[string]any, key string, drop func(map[string]any) bool) {
	list, ok := object[key].([]any)
	if !ok {
		return
	}
	var kept []any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && drop(m) {
			continue
		}
		kept = append(kept, item)
	}
	if len(kept) == 0 {
		delete(object, key)
		return
	}
	object[key] = kept
}
