package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/readiness"
)

// An Observer hears of every node that the gate watches over. It must not block: it is called while the node's key is
// worked on. It may be called by several goroutines, for one node by one at a time. It keeps nothing of what it is given
// but what it copies, and must not change it.
type Observer interface {
	// Seen gives what is true of the node now. It is absolute: the last one holds.
	Seen(Sight)
	// Left tells that the gate no longer watches over the node.
	Left(node string)
	// Decided tells of a write that was made, or in a dry run of one that would have been.
	Decided(Decision)
}

// A Sight is a node as the gate sees it.
type Sight struct {
	Node   *corev1.Node
	Result readiness.Result
	// Settling tells that the result is held back until the mirrors have stood for a while.
	Settling bool
	// Held tells that the node bears the readiness taint, HeldSince when that was first known to be for want of what the
	// result names; zero while it is not held.
	Held      bool
	HeldSince time.Time
	// Warned tells that it has been held for longer than the warning allows.
	Warned bool
	// Released tells that the taint was taken away by rollcall.
	Released bool
}

// What a Decision is about.
const (
	DecidedCondition = "condition"
	DecidedRelease   = "release"
	DecidedHeld      = "held"
)

// A Decision is one thing that the gate did.
type Decision struct {
	Time   time.Time
	What   string // DecidedCondition, DecidedRelease or DecidedHeld
	Node   string
	Status corev1.ConditionStatus
	Reason string
	Why    string
	// DryRun tells that it would have been done.
	DryRun bool
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Seen(Sight)       {}
func (nobody) Left(string)      {}
func (nobody) Decided(Decision) {}
