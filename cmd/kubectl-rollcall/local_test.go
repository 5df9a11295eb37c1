package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter"
)

// The controller in this process says why it does not come to know the cluster, and the way out.
func TestLocalSaysWhatItLacks(t *testing.T) {
	forbidden := aCluster(t, http.StatusForbidden, "Forbidden", `User "u" cannot list`)
	expired := aCluster(t, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	ended := aCluster(t, http.StatusOK, "", "")
	ended.Close()
	token := `{"token":"t"}`
	for name, tc := range map[string]struct {
		server, user, problem, advice string
		lasting                       bool
	}{
		"no right": {forbidden.URL, token, "you may not list and watch daemonsets.apps, jobs.batch, nodes, pods, replicasets.apps, replicationcontrollers, statefulsets.apps in the cluster at " + forbidden.URL,
			"kubectl auth can-i list daemonsets.apps --all-namespaces", true},
		"expired":   {expired.URL, token, "does not accept your credentials", "log in again", false},
		"no answer": {ended.URL, token, "no cluster answers at " + ended.URL, "--context", false},
		"no login":  {expired.URL, plugin(t, "exit 3"), "credential plugin gave no credentials", "log in again", true},
	} {
		t.Run(name, func(t *testing.T) {
			connection := genericclioptions.NewConfigFlags(true)
			kubeconfig := twoContexts(t, tc.server, tc.user)
			connection.KubeConfig, connection.CacheDir = &kubeconfig, nil
			o := &uiOptions{source: source{connection: connection}, local: true, disruption: karpenter.DefaultConfig()}
			var running sync.WaitGroup
			defer running.Wait()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			dialer, err := o.startLocal(ctx, &running)
			if err != nil {
				t.Fatal(err)
			}
			err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
				_, failed := dialer.Dial(ctx)
				var e *stream.ConnectError
				if !errors.As(failed, &e) {
					return false, failed
				}
				return strings.Contains(e.Problem, tc.problem) && strings.Contains(e.Advice, tc.advice) && e.Lasting == tc.lasting, nil
			})
			if err != nil {
				_, last := dialer.Dial(ctx)
				t.Errorf("it says %v, want %q: %v", last, tc.problem, err)
			}
		})
	}
}
