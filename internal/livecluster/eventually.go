package livecluster

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// WaitingTB is the part of testing.TB that Eventually uses.
type WaitingTB interface {
	TB
	Context() context.Context
}

// Eventually waits, for patience at most, until the condition holds without an error, and fails the test with the last
// error where it never does.
func Eventually(t WaitingTB, patience time.Duration, what string, holds func(ctx context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var ok bool
		ok, last = holds(ctx)
		return ok && last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}
