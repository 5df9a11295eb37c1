package livecluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: sentinel, namespace: kube-system}
spec: {containers: [{name: c, image: "i:1"}]}
`

func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// A node registers, mirrors its static pod, runs a pod, dies and comes back under its name.
func TestNodeLife(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	client := kubernetes.NewForConfigOrDie(c.Config())
	m, err := c.AddNode(ctx, Node{Name: "life", CPU: 3, Memory: "2Gi", Labels: map[string]string{"example.com/l": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	node, err := client.CoreV1().Nodes().Get(ctx, "life", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cpu := node.Status.Allocatable.Cpu().Value(); cpu != 3 || node.Labels["example.com/l"] != "v" {
		t.Errorf("node has %d cores and labels %v, want 3 and example.com/l=v", cpu, node.Labels)
	}
	if err := os.WriteFile(filepath.Join(m.StaticPods, "sentinel.yaml"), []byte(staticPod), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "mirror pod", func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods("kube-system").Get(ctx, "sentinel-life", metav1.GetOptions{})
		return err == nil && pod.Annotations[corev1.MirrorPodAnnotationKey] != "" && pod.Status.Phase == corev1.PodRunning, nil
	})
	if err := c.KillNode(ctx, "life"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(m.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the kubelet's process still answers: %v", err)
	}
	if again, err := c.AddNode(ctx, Node{Name: "life"}); err != nil || again.StaticPods != m.StaticPods {
		t.Errorf("coming back: %v, static pods in %q, want %q", err, again.StaticPods, m.StaticPods)
	}
}

// A pod runs, is deleted, and its container reports the exit code that its annotation asks for.
func TestContainersEndAsTold(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	client := kubernetes.NewForConfigOrDie(c.Config())
	if _, err := c.AddNode(ctx, Node{Name: "ends"}); err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "done", Annotations: map[string]string{
			"cluster.rollcall.dev/exits-after": "1s", "cluster.rollcall.dev/exit-code": "7",
		}},
		Spec: corev1.PodSpec{
			NodeName: "ends", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "c", Image: "i:1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "exit code", func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, "done", metav1.GetOptions{})
		if err != nil || pod.Status.Phase != corev1.PodFailed {
			return false, err
		}
		if code := pod.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 7 {
			t.Fatalf("exit code %d, want 7", code)
		}
		return true, nil
	})
}

// Nothing is left of a cluster whose supervisor is killed, nor of one whose owner goes away.
func TestNothingStays(t *testing.T) {
	for name, end := range map[string]func(*Cluster){
		"supervisor killed": func(c *Cluster) { _ = c.supervisor.Process.Kill() },
		"owner gone":        func(c *Cluster) { _ = c.lifeline.Close() },
		"stopped":           func(c *Cluster) { c.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Start(t.Context(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Stop()
			m, err := c.AddNode(t.Context(), Node{Name: "n", NoWait: true})
			if err != nil {
				t.Fatal(err)
			}
			end(c)
			eventually(t, "kubelet gone", func(context.Context) (bool, error) {
				return errors.Is(syscall.Kill(m.Pid, 0), syscall.ESRCH), nil
			})
			eventually(t, "API server gone", func(ctx context.Context) (bool, error) {
				_, err := kubernetes.NewForConfigOrDie(c.Config()).Discovery().ServerVersion()
				return err != nil, nil
			})
		})
	}
}
