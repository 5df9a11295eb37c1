package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
)

func defaultDir() string { return filepath.Join(os.TempDir(), "rollcall-cluster") }

func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir(), "directory of the cluster; it is removed when the cluster stops")
}

// newSupervisorCommand is what 'up' starts, and what programs start that want a cluster for as long as they live: it prints
// its status as one line of JSON when all is ready, and stops when its standard input ends.
func newSupervisorCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "supervise",
		Short: "Run a cluster in the foreground until standard input ends or a signal comes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return supervise(dir)
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}

func newUpCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster in the background and print its kubeconfig",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return up(cmd.Context(), dir) },
	}
	addDirFlag(cmd, &dir)
	return cmd
}

// up starts a supervisor, waits until it is ready, and lets it go. Until then the supervisor hangs on a pipe of this
// process, so that a Ctrl-C or a crash while it starts leaves nothing behind.
func up(ctx context.Context, dir string) error {
	var running status
	if err := ask(ctx, dir, http.MethodGet, "/status", nil, &running); err == nil {
		return fmt.Errorf("a cluster runs in %s already: KUBECONFIG=%s; 'cluster down --dir %s' stops it", dir, running.Kubeconfig, dir)
	}
	if err := os.RemoveAll(dir); err != nil { // of a supervisor that was killed
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	logPath := filepath.Join(filepath.Dir(dir), filepath.Base(dir)+".log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	supervisor := exec.Command(self, "supervise", "--dir", dir)
	supervisor.Stderr = log
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	parent, err := supervisor.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := supervisor.StdoutPipe()
	if err != nil {
		return err
	}
	if err := supervisor.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		_ = supervisor.Wait()
		return fmt.Errorf("the cluster did not start:\n%s", logTail(logPath))
	}
	if _, err := parent.Write([]byte{'d'}); err != nil {
		return err
	}
	var ready status
	if err := json.Unmarshal(line, &ready); err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\n", ready.Kubeconfig)
	return nil
}

func newDownCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a cluster and remove its directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var running status
			if err := ask(cmd.Context(), dir, http.MethodGet, "/status", nil, &running); err != nil {
				return err
			}
			if err := ask(cmd.Context(), dir, http.MethodPost, "/stop", nil, &struct{}{}); err != nil {
				return err
			}
			return waitGone(cmd.Context(), running.Pid)
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}

func newNodeAddCommand() *cobra.Command {
	var dir string
	var spec nodeSpec
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Start a kubelet and wait until its Node is Ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name = args[0]
			body, err := json.Marshal(spec)
			if err != nil {
				return err
			}
			var added node
			if err := ask(cmd.Context(), dir, http.MethodPost, "/nodes", bytes.NewReader(body), &added); err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(&added)
		},
	}
	addDirFlag(cmd, &dir)
	fs := cmd.Flags()
	fs.IntVar(&spec.CPU, "cpu", 2, "cores of the machine")
	fs.StringVar(&spec.Memory, "memory", "4Gi", "memory of the machine")
	fs.IntVar(&spec.Pods, "pods", 110, "most pods that it runs")
	fs.StringVar(&spec.StaticPods, "static-pods", "", "directory of the static pods, there or not (default one of the cluster's own)")
	fs.StringVar(&spec.StaticPodURL, "static-pod-url", "", "URL of further static pods")
	fs.StringVar(&spec.BootID, "boot-id", "", "boot id of the machine (default a new one)")
	fs.StringVar(&spec.ProviderID, "provider-id", "", "provider id of the Node")
	fs.StringToStringVar(&spec.Labels, "label", nil, "labels of the Node, key=value")
	fs.StringArrayVar(&spec.Taints, "taint", nil, "taint with which the Node registers, key=value:effect; may be repeated")
	addThrottleFlags(fs, &spec.APIQPS, &spec.APIBurst)
	fs.BoolVar(&spec.NoWait, "no-wait", false, "return once the kubelet runs")
	return cmd
}

func newNodeKillCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "kill NAME",
		Short: "End a machine: its kubelet gets SIGKILL, the Node object stays",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), dir, http.MethodDelete, "/nodes/"+args[0], nil, &struct{}{})
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}

func newNodeListCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the kubelets of a cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var running status
			if err := ask(cmd.Context(), dir, http.MethodGet, "/status", nil, &running); err != nil {
				return err
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tRUNNING\tPID\tPORT\tSTATIC PODS")
			for _, n := range running.Nodes {
				fmt.Fprintf(w, "%s\t%t\t%d\t%d\t%s\n", n.Spec.Name, n.Running, n.Pid, n.Port, n.Spec.StaticPods)
			}
			return w.Flush()
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}

// waitGone returns when the process has ended, a child of somebody else.
func waitGone(ctx context.Context, pid int) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), nil
	})
}
