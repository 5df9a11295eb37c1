package kubelet

import (
	"context"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/readiness"
)

// Source is one way to learn the expected set.
type Source interface {
	// Name is how the expected set names the source.
	Name() string
	// Run reports, until ctx ends, what the source says now, and again whenever that changes; the first report comes at
	// once. A source whose kubelet has once answered, if only that it does not know yet, does not become Absent any more.
	// report may block.
	Run(ctx context.Context, report func(Answer))
}

// State is what a source can say.
type State int

// States of a source.
const (
	// Absent: this machine has no such source, the next one may be asked.
	Absent State = iota
	// Waiting: it has one that does not know yet; asking another could give a wrong answer.
	Waiting
	// Known: this is the set.
	Known
)

// Answer is what a source says at one moment.
type Answer struct {
	State State
	// Why says, for people, why the set is not known.
	Why     string
	Pods    []readiness.StaticPod
	Ignored []readiness.IgnoredFile
}

// Choice picks among the answers of several sources. It is not for concurrent use.
type Choice struct {
	names   []string
	answers map[string]Answer
	last    *readiness.Expected
}

// NewChoice makes a Choice among sources of these names, the preferred one first.
func NewChoice(names ...string) *Choice { return &Choice{names: names, answers: map[string]Answer{}} }

// Hear takes what a source says now.
func (c *Choice) Hear(source string, answer Answer) { c.answers[source] = answer }

// Expected returns the set by the first source that there is. While a source that has spoken is silent, as while a kubelet
// restarts, what was known holds: static pods go on running. Ignored files come from whichever source knows of any.
func (c *Choice) Expected(bootID string, now time.Time) readiness.Expected {
	why := "no source of static pods is configured"
	for _, name := range c.names {
		answer, heard := c.answers[name]
		if !heard {
			return c.lastOr(name + " has not been read yet")
		}
		why = fmt.Sprintf("%s: %s", name, answer.Why)
		switch answer.State {
		case Known:
			return c.known(name, answer, bootID, now)
		case Waiting:
			return c.lastOr(why)
		}
	}
	return c.lastOr(why)
}

func (c *Choice) lastOr(why string) readiness.Expected {
	if c.last != nil {
		return *c.last
	}
	return readiness.Expected{Unknown: why}
}

func (c *Choice) known(source string, answer Answer, bootID string, now time.Time) readiness.Expected {
	expected := readiness.Expected{Source: source, BootID: bootID, Observed: now, Pods: answer.Pods}
	for _, name := range c.names {
		expected.Ignored = append(expected.Ignored, c.answers[name].Ignored...)
	}
	expected.Sort()
	if c.last != nil && c.last.Same(&expected) {
		expected.Observed = c.last.Observed
	}
	c.last = &expected
	return expected
}
