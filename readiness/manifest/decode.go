package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// decoder knows the core group only: an object of any other is no pod, whether it is known or not.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err) // a slip of the library: it registers its own types
	}
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

// Decode makes of a file's content the static pod that the kubelet of node accepts, with its name and namespace, or tells
// why it refuses it (tryDecodeSinglePod and applyDefaults of pkg/kubelet/config/common.go). Of defaults it applies those
// that decide about requests. The pod does not share memory with data.
func Decode(data []byte, node string) (*corev1.Pod, error) {
	content, err := toJSON(data)
	if err != nil {
		return nil, err
	}
	object, err := runtime.Decode(decoder, content)
	if err != nil {
		return nil, explain(data, content, err)
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, noPod(content)
	}
	if pod.Name == "" {
		return nil, errors.New("no name")
	}
	applyDefaults(pod, node)
	if errs := validate(pod); len(errs) > 0 {
		return nil, fmt.Errorf("invalid: %w", errs.ToAggregate())
	}
	if reference := apiReference(pod); reference != "" {
		return nil, fmt.Errorf("static pods may not refer to %s", reference)
	}
	return pod, nil
}

// toJSON takes content whose first character is a brace for JSON to its end; of any other the first YAML document counts.
func toJSON(data []byte) ([]byte, error) {
	content, err := yaml.ToJSON(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("no YAML: %w", err)
	case bytes.Equal(bytes.TrimSpace(content), []byte("null")):
		return nil, errors.New("empty, or its first document is: only that counts")
	case !yaml.IsJSONBuffer(content):
		return nil, errors.New("no pod, but a list or a plain text")
	}
	return content, nil
}

// explain makes of a decoder's error what tells people what is wrong with the file.
func explain(data, content []byte, err error) error {
	switch {
	case runtime.IsNotRegisteredError(err):
		return noPod(content)
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err):
		return errors.New("no pod: apiVersion and kind are not both there")
	case yaml.IsJSONBuffer(data):
		return fmt.Errorf("it begins with a brace and is therefore read as JSON: %w", err)
	}
	return err
}

func noPod(content []byte) error {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(content, &meta); err != nil {
		return errors.New("no pod")
	}
	return fmt.Errorf("no pod, but kind %s of %s", meta.Kind, meta.APIVersion)
}

// applyDefaults names the pod and gives it the defaults on which requests and validation depend; where validation can take
// an empty field for its default, the field stays empty (SetDefaults_* of pkg/apis/core/v1/defaults.go). Requests at pod
// level get none when a manifest is decoded.
func applyDefaults(pod *corev1.Pod, node string) {
	pod.Name += "-" + strings.ToLower(node)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	spec := &pod.Spec
	spec.NodeName = node
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	period := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case spec.TerminationGracePeriodSeconds == nil:
		spec.TerminationGracePeriodSeconds = &period
	case *spec.TerminationGracePeriodSeconds < 0:
		*spec.TerminationGracePeriodSeconds = 1
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Requests)
		roundUp(spec.Resources.Limits)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			defaultContainer(&containers[i], spec.HostNetwork)
		}
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	roundUp(c.Resources.Requests)
	roundUp(c.Resources.Limits)
	if c.Resources.Limits != nil && c.Resources.Requests == nil {
		c.Resources.Requests = corev1.ResourceList{}
	}
	for name, limit := range c.Resources.Limits {
		if _, there := c.Resources.Requests[name]; !there {
			c.Resources.Requests[name] = limit.DeepCopy()
		}
	}
	for i := range c.Ports {
		port := &c.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if hostNetwork && port.HostPort == 0 {
			port.HostPort = port.ContainerPort
		}
	}
}

// roundUp rounds quantities up to thousandths (SetDefaults_ResourceList).
func roundUp(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(-3)
		list[name] = quantity
	}
}
