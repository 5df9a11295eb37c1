// Package liverollcall runs rollcall's own programs beside a livecluster, as people do: it builds them, starts them, waits
// until they work and stops them, also when this process crashes. It knows them only by their command lines.
package liverollcall

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

// The programs.
const (
	Controller = "rollcall-controller"
	Agent      = "rollcall-agent"
	Plugin     = "kubectl-rollcall"
)

// exitFound is the plugin's exit status where what was asked about is not as one would wish: an answer, no failure.
const exitFound = 3

// Binaries are built programs in a directory, with the logs of those that run.
type Binaries struct{ Dir string }

// Build builds the programs into dir, which is the caller's to remove.
func Build(ctx context.Context, dir string, programs ...string) (*Binaries, error) {
	for _, program := range programs {
		if _, err := livecluster.Executable(ctx, dir, "./cmd/"+program); err != nil {
			return nil, err
		}
	}
	return &Binaries{Dir: dir}, nil
}

// Controller starts a rollcall-controller as an administrator and waits until it says that it is ready.
func (b *Binaries) Controller(ctx context.Context, cluster *livecluster.Cluster, flags ...string) (*Program, error) {
	ports, err := livecluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	health := fmt.Sprintf("127.0.0.1:%d", ports[0])
	usual := []string{"--kubeconfig", cluster.Kubeconfig(), "--health-address", health, "--leader-elect-namespace", "kube-system"}
	p, err := b.Start(Controller, Controller, append(usual, flags...)...)
	if err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		if p.ended() {
			return false, errors.New("it ended")
		}
		return ready(ctx, "http://"+health+"/readyz"), nil
	})
	if err != nil {
		p.Stop()
		return nil, p.Explain(fmt.Errorf("waiting for %s to be ready: %w", Controller, err))
	}
	return p, nil
}

// servedAt is how a controller says where it serves its stream.
var servedAt = regexp.MustCompile(`serving the stream" address=(\S+)`)

// Stream returns the host:port at which the controller serves its stream, and "" as long as it does not.
func (p *Program) Stream() (string, error) {
	words, err := p.Said()
	if found := servedAt.FindStringSubmatch(words); found != nil {
		return found[1], nil
	}
	return "", err
}

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false // not listening yet
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Agent starts the rollcall-agent of a machine, which is in that boot.
func (b *Binaries) Agent(cluster *livecluster.Cluster, machine *livecluster.Machine, bootID string, flags ...string) (*Program, error) {
	name := Agent + "-" + machine.Name
	boot := filepath.Join(b.Dir, name+".boot")
	if err := os.WriteFile(boot, []byte(bootID+"\n"), 0o600); err != nil {
		return nil, err
	}
	usual := []string{
		"--node-name", machine.Name, "--kubeconfig", cluster.Kubeconfig(), "--boot-id-file", boot,
		"--pods-api-socket", filepath.Join(machine.Root, "pods-api", "pods-api.sock"), "--manifests", machine.StaticPods,
	}
	return b.Start(Agent, name, append(usual, flags...)...)
}

// Ask runs the plugin to its end and returns what it prints.
func (b *Binaries) Ask(ctx context.Context, cluster *livecluster.Cluster, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(b.Dir, Plugin), append(args, "--kubeconfig", cluster.Kubeconfig())...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitFound) {
		return nil, fmt.Errorf("kubectl rollcall %q: %w: %s", args, err, out)
	}
	return out, nil
}
