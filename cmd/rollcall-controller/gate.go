package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// gateOptions is what the command line says of new nodes.
type gateOptions struct {
	taintText    string
	condition    string
	settle       time.Duration
	heldWarning  time.Duration
	releaseTaint bool

	taint readiness.Taint // what complete makes of taintText
}

func (o *gateOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.taintText, "readiness-taint", readiness.DefaultTaint.String(), "the taint that holds a new node until its static pods are mirrored, as `key[:effect]`")
	fs.StringVar(&o.condition, "condition", readiness.DefaultCondition, "`type` of the Node's condition that says whether its static pods are mirrored")
	fs.DurationVar(&o.settle, "settle", time.Second, "how long all mirrors must have stood before the condition is True")
	fs.DurationVar(&o.heldWarning, "held-warning", 5*time.Minute, "after how long with the readiness taint an Event on the Node says what is missing; 0 for never")
	fs.BoolVar(&o.releaseTaint, "release-taint", false, "take the readiness taint away once the condition is True, for clusters without the Node Readiness Controller; needs to patch nodes")
}

// complete checks the flags.
func (o *gateOptions) complete() (err error) {
	if o.taint, err = readiness.ParseTaint(o.taintText); err != nil {
		return fmt.Errorf("--readiness-taint: %w", err)
	}
	switch {
	case len(validation.IsQualifiedName(o.condition)) > 0:
		return fmt.Errorf("--condition %q is no type of a condition, such as %s", o.condition, readiness.DefaultCondition)
	case o.settle < 0 || o.heldWarning < 0:
		return errors.New("--settle and --held-warning cannot be negative; 0 means that nothing is waited for, and that no warning is given")
	}
	return nil
}

// newGate has the keys of new nodes reconciled.
func newGate(o *options, clients informers.Clients, set *informers.Set, keys *queue.Queue, measures *metrics.Metrics, observer gate.Observer) error {
	_, err := gate.New(clients.Typed, set, gate.Options{
		Taint: o.gate.taint, Condition: o.gate.condition, Settle: o.gate.settle, HeldWarning: o.gate.heldWarning,
		ReleaseTaint: o.gate.releaseTaint, Queue: keys, DryRun: o.dryRun, Identity: o.leader.Identity, Metrics: measures,
		Observer: observer,
	})
	return err
}
