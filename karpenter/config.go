package karpenter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

// Config is what a user may say about the disruption of nodes. It does not change once the flags are parsed and is then
// safe for concurrent use.
type Config struct {
	// Taints are rules beside the built-in ones. Where several rules match one taint, the strongest state counts: a user's
	// rule never weakens a built-in one.
	Taints []TaintRule
	// Notice is, by cause, the time from the signal to the end of the machine. No entry and zero mean that none is known.
	Notice map[string]time.Duration
}

// DefaultConfig is the built-in knowledge of DESIGN.md section 2.
func DefaultConfig() *Config {
	return &Config{Notice: map[string]time.Duration{
		"aws-node-termination-handler/spot-itn":       2 * time.Minute,
		"spot-interruption":                           2 * time.Minute,
		"cloud.google.com/impending-node-termination": 30 * time.Second,
		"aks-node-termination-handler/preempt":        30 * time.Second,
	}}
}

// AddFlags registers --interruption-taint and --notice. Call Validate once they are parsed.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.Var((*taintFlag)(c), "interruption-taint",
		"a `key[=value][:effect]` that commits its node to going, beside the built-in ones; repeatable. "+
			"Naming a built-in pending taint makes it committed; no built-in rule is weakened. PreferNoSchedule never counts. "+
			"Off unless named here: "+corev1.TaintNodeUnschedulable+" (any cordon), "+corev1.TaintNodeNotReady+", "+corev1.TaintNodeUnreachable)
	fs.Var((*noticeFlag)(c), "notice",
		"`cause=duration` from the signal to the end of the machine; repeatable. The cause is a taint key, "+
			NodeClaimDeleted+", "+NodeDeleted+" or the reason of Karpenter's Event ("+strings.Join(interruptionReasons, ", ")+"); 0 means that none is known. Built in: "+c.notices())
}

// Validate reports a --notice for a cause that does not exist.
func (c *Config) Validate() error {
	for _, cause := range slices.Sorted(maps.Keys(c.Notice)) {
		if !c.knows(cause) {
			return fmt.Errorf("--notice names the unknown cause %q: it must be a built-in taint key, %s, %s, the reason of Karpenter's Event (%s) or the key of an --interruption-taint",
				cause, NodeClaimDeleted, NodeDeleted, strings.Join(interruptionReasons, ", "))
		}
	}
	return nil
}

func (c *Config) knows(cause string) bool {
	named := func(r TaintRule) bool { return r.Key == cause }
	return cause == NodeClaimDeleted || cause == NodeDeleted || slices.Contains(interruptionReasons, cause) ||
		slices.ContainsFunc(builtinTaints, named) || slices.ContainsFunc(c.Taints, named)
}

// taintState is the strongest state that a rule gives the taint.
func (c *Config) taintState(taint corev1.Taint) State {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule {
		return None
	}
	state := None
	for _, rules := range [][]TaintRule{builtinTaints, c.Taints} {
		for _, rule := range rules {
			if !rule.matches(taint) {
				continue
			}
			if rule.State == Committed {
				return Committed
			}
			state = rule.State
		}
	}
	return state
}

// signalled tells whether anything on the Node itself may put it in a state other than None, now or later. It is much
// cheaper than Disrupt and depends on the Node alone, so that an index can be made of it.
func (c *Config) signalled(node *corev1.Node) bool {
	return node.DeletionTimestamp != nil || slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return c.taintState(taint) != None
	})
}

func (c *Config) notices() string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(c.Notice)) {
		parts = append(parts, cause+"="+c.Notice[cause].String())
	}
	return strings.Join(parts, ", ")
}

// taintFlag is a Config as the pflag.Value that collects --interruption-taint.
type taintFlag Config

func (f *taintFlag) Set(text string) error {
	rule, err := ParseTaintRule(text)
	if err != nil {
		return err
	}
	f.Taints = append(f.Taints, rule)
	return nil
}

func (f *taintFlag) String() string {
	var parts []string
	for _, rule := range f.Taints {
		parts = append(parts, rule.String())
	}
	return strings.Join(parts, ",")
}

func (f *taintFlag) Type() string { return "key[=value][:effect]" }

// noticeFlag is a Config as the pflag.Value that collects --notice.
type noticeFlag Config

func (f *noticeFlag) Set(text string) error {
	const form = "the form is cause=duration, for example spot-interruption=2m"
	i := strings.LastIndex(text, "=")
	if i <= 0 {
		return fmt.Errorf("malformed notice %q: no cause or no duration (%s)", text, form)
	}
	notice, err := time.ParseDuration(text[i+1:])
	if err != nil || notice < 0 {
		return fmt.Errorf("malformed notice %q: %q is no duration of zero or more (%s)", text, text[i+1:], form)
	}
	if f.Notice == nil {
		f.Notice = map[string]time.Duration{}
	}
	f.Notice[text[:i]] = notice
	return nil
}

// String is empty: the help text names the built-in notices, pflag need not do so again.
func (f *noticeFlag) String() string { return "" }

func (f *noticeFlag) Type() string { return "cause=duration" }
