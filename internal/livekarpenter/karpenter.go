// Package livekarpenter runs the real Karpenter beside a livecluster: it builds demo/karpenter's binary once, installs
// Karpenter's CustomResourceDefinitions and stops what it started, also when this process crashes. Karpenter's kwok
// provider makes Node objects only; who wants machines behind them starts kubelets under their names, or a StandIn.
package livekarpenter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// NodeClass is the name of the KWOKNodeClass that Start makes, for a NodePool's nodeClassRef.
const NodeClass = "default"

// startTimeout bounds how long Karpenter may take to become ready.
const startTimeout = 2 * time.Minute

var module = livecluster.Module{Name: "karpenter", What: "Karpenter with its kwok provider", Takes: "3 to 10 minutes"}

var (
	crdResource   = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	classResource = schema.GroupVersionResource{Group: "karpenter.kwok.sh", Version: "v1alpha1", Resource: "kwoknodeclasses"}
)

// Karpenter is a running Karpenter. Keep it for as long as it should run: when it is forgotten, Karpenter stops.
type Karpenter struct {
	command  *exec.Cmd
	lifeline io.Closer
	log      *os.File
	stopOnce sync.Once
}

// Binary returns the path of Karpenter's binary, built from demo/karpenter if the cache holds none of the same content. It
// is always built with optimisation: rollcall is measured against its speed.
func Binary(ctx context.Context, progress io.Writer) (string, error) {
	return module.Binary(ctx, progress, true)
}

// Start builds the binary if need be, installs the definitions and runs Karpenter against the cluster. It returns when
// Karpenter is ready.
func Start(ctx context.Context, cluster *livecluster.Cluster, progress io.Writer) (*Karpenter, error) {
	binary, err := Binary(ctx, progress)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		return nil, err
	}
	if err := install(ctx, client, binary); err != nil {
		return nil, fmt.Errorf("installing Karpenter's definitions: %w", err)
	}
	k := &Karpenter{}
	if err := k.run(ctx, cluster, binary); err != nil {
		k.Stop()
		return nil, fmt.Errorf("starting Karpenter: %w", err)
	}
	return k, nil
}

// install makes what is not there yet.
func install(ctx context.Context, client dynamic.Interface, binary string) error {
	out, err := exec.CommandContext(ctx, binary, "crds").Output()
	if err != nil {
		return err
	}
	var list unstructured.UnstructuredList
	if err := json.Unmarshal(out, &list); err != nil {
		return err
	}
	for _, crd := range list.Items {
		crd.SetAPIVersion(crdResource.GroupVersion().String())
		crd.SetKind("CustomResourceDefinition")
		if _, err := client.Resource(crdResource).Create(ctx, &crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": classResource.GroupVersion().String(), "kind": "KWOKNodeClass", "metadata": map[string]any{"name": NodeClass},
	}}
	// The kind is served a moment after its definition is made.
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(classResource).Create(ctx, class, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
}

func (k *Karpenter) run(ctx context.Context, cluster *livecluster.Cluster, binary string) error {
	ports, err := livecluster.FreePorts(2)
	if err != nil {
		return err
	}
	metrics, health := ports[0], ports[1]
	if k.log, err = os.Create(filepath.Join(cluster.Dir(), "karpenter.log")); err != nil {
		return err
	}
	k.command = exec.Command(binary, "run")
	k.command.Env = append(os.Environ(),
		"KUBECONFIG="+cluster.Kubeconfig(), "SYSTEM_NAMESPACE=kube-system", "KARPENTER_SERVICE=karpenter", "DISABLE_LEADER_ELECTION=true",
		"METRICS_PORT="+strconv.Itoa(metrics), "HEALTH_PROBE_PORT="+strconv.Itoa(health))
	k.command.Stdout, k.command.Stderr = k.log, k.log
	k.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C reaches this process, which closes the lifeline
	lifeline, err := k.command.StdinPipe()
	if err != nil {
		return err
	}
	if err := k.command.Start(); err != nil {
		return err
	}
	k.lifeline = lifeline
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", health), nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil // not yet
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("it did not become ready: %w\n%s", err, k.lastLines())
	}
	return nil
}

// Stop ends Karpenter. It may be called more than once.
func (k *Karpenter) Stop() {
	k.stopOnce.Do(func() {
		if k.lifeline != nil {
			_ = k.lifeline.Close()
			_ = k.command.Wait()
		}
		if k.log != nil {
			_ = k.log.Close()
		}
	})
}

func (k *Karpenter) lastLines() []byte {
	text, err := os.ReadFile(k.log.Name())
	if err != nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-10):], []byte("\n"))
}
