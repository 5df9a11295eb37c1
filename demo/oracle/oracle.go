// Package oracle is the kubelet's own decoder of static pods, of Kubernetes 1.37, for tests: what it accepts is right.
package oracle

import (
	"path/filepath"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
	_ "k8s.io/kubernetes/pkg/kubelet/config" // has the two functions below
)

//go:linkname tryDecodeSinglePod k8s.io/kubernetes/pkg/kubelet/config.tryDecodeSinglePod
func tryDecodeSinglePod(logger klog.Logger, data []byte, defaultFn func(klog.Logger, *api.Pod) error) (bool, *v1.Pod, error)

//go:linkname applyDefaults k8s.io/kubernetes/pkg/kubelet/config.applyDefaults
func applyDefaults(logger klog.Logger, pod *api.Pod, source string, isFile bool, nodeName types.NodeName) error

func init() {
	// What the decoder warns of is no result.
	klog.SetLogger(logr.Discard())
	// As cmd/kubelet does: privileged static pods are allowed.
	capabilities.Setup(true, 0)
}

// Decode makes of a file's content the static pod that the kubelet of node would run, or tells why it runs none.
func Decode(data []byte, node string) (*v1.Pod, error) {
	logger := klog.Background()
	_, pod, err := tryDecodeSinglePod(logger, data, func(logger klog.Logger, pod *api.Pod) error {
		return applyDefaults(logger, pod, filepath.Join("manifests", "x.yaml"), true, types.NodeName(node))
	})
	return pod, err
}
