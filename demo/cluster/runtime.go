package main

import (
	"context"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Annotations on a pod choose how its containers behave on the fake runtime. Without any, a container runs until it is
// stopped, stops at once and reports 143, what a program that does not catch SIGTERM leaves behind.
const (
	exitCodeAnnotation = "cluster.rollcall.dev/exit-code"   // of every container, when stopped or when done
	stopTimeAnnotation = "cluster.rollcall.dev/stop-after"  // a duration: time needed to stop; beyond the grace period it is killed (137)
	runTimeAnnotation  = "cluster.rollcall.dev/exits-after" // a duration: the container is done by itself after that time
)

const (
	exitTerminated = 143 // SIGTERM
	exitKilled     = 137 // SIGKILL
)

// fakeRuntime is the CRI's fake with containers that end like real ones: with an exit code, after a time.
type fakeRuntime struct {
	*apitest.FakeRuntimeService
	streams streaming.Server // set by serveStreams
}

func newFakeRuntime() *fakeRuntime {
	r := &fakeRuntime{FakeRuntimeService: apitest.NewFakeRuntimeService()}
	r.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}
	return r
}

// StartContainer starts the container and, where its pod says so, lets it finish later.
func (r *fakeRuntime) StartContainer(ctx context.Context, id string) error {
	if err := r.FakeRuntimeService.StartContainer(ctx, id); err != nil {
		return err
	}
	if after, err := time.ParseDuration(r.annotation(id, runTimeAnnotation)); err == nil {
		time.AfterFunc(after, func() { r.exit(id, r.exitCode(id, 0)) })
	}
	return nil
}

// StopContainer waits as long as the container needs, at most the timeout (seconds), and records how it ended.
func (r *fakeRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	code := r.exitCode(id, exitTerminated)
	if needs, err := time.ParseDuration(r.annotation(id, stopTimeAnnotation)); err == nil {
		grace := time.Duration(timeout) * time.Second
		if needs > grace {
			needs, code = grace, exitKilled
		}
		select {
		case <-time.After(needs):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.exit(id, code)
	return nil
}

// exit ends a running container; one that has already ended keeps its first exit code.
func (r *fakeRuntime) exit(id string, code int32) {
	r.Lock()
	defer r.Unlock()
	container, ok := r.Containers[id]
	if !ok || container.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	container.State = runtimeapi.ContainerState_CONTAINER_EXITED
	container.FinishedAt = time.Now().UnixNano()
	container.ExitCode = code
	container.Reason = "Completed"
	if code != 0 {
		container.Reason = "Error"
	}
}

func (r *fakeRuntime) exitCode(id string, otherwise int32) int32 {
	code, err := strconv.ParseInt(r.annotation(id, exitCodeAnnotation), 10, 32)
	if err != nil {
		return otherwise
	}
	return int32(code)
}

// annotation reads an annotation of the pod to which the container belongs.
func (r *fakeRuntime) annotation(id, key string) string {
	r.Lock()
	defer r.Unlock()
	container, ok := r.Containers[id]
	if !ok {
		return ""
	}
	return r.ofSandbox(container.SandboxID, key)
}

// sandboxAnnotation reads an annotation of the pod whose sandbox that is.
func (r *fakeRuntime) sandboxAnnotation(id, key string) string {
	r.Lock()
	defer r.Unlock()
	return r.ofSandbox(id, key)
}

// ofSandbox is sandboxAnnotation for those who hold the lock.
func (r *fakeRuntime) ofSandbox(id, key string) string {
	sandbox, ok := r.Sandboxes[id]
	if !ok {
		return ""
	}
	return sandbox.Annotations[key]
}
