package readiness

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

// StaticPodsAnnotation is the annotation on a Node under which its agent publishes the expected set.
const StaticPodsAnnotation = domain.StaticPods

// Bounds of what is published: all annotations of an object together may have 256 KiB.
const (
	maxIgnored   = 32
	maxWhy       = 200 // bytes
	maxPublished = 128 << 10
)

// published is the annotation's JSON.
type published struct {
	Source   string         `json:"source"`
	BootID   string         `json:"bootID"`
	Observed string         `json:"observed"` // RFC3339, UTC
	Agent    string         `json:"agent,omitempty"`
	Pods     []publishedPod `json:"pods"`
	Ignored  []IgnoredFile  `json:"ignored,omitempty"`
}

type publishedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Hash      string `json:"hash,omitempty"`
	CPU       string `json:"cpu"`
	Memory    string `json:"memory"`
}

// Encode returns the annotation's value; agent names who publishes it. Of ignored files the first 32 are kept. A set that
// is unknown, or too large for an annotation, is an error.
func (e *Expected) Encode(agent string) (string, error) {
	if e.Unknown != "" {
		return "", fmt.Errorf("the static pods are not known: %s", e.Unknown)
	}
	p := published{
		Source: e.Source, BootID: e.BootID, Observed: e.Observed.UTC().Format(time.RFC3339), Agent: agent,
		Pods: make([]publishedPod, 0, len(e.Pods)),
	}
	for _, pod := range e.Pods {
		p.Pods = append(p.Pods, publishedPod{pod.Namespace, pod.Name, pod.Hash, pod.CPU.String(), pod.Memory.String()})
	}
	for i, file := range e.Ignored {
		if i == maxIgnored {
			break
		}
		file.Why = shorten(file.Why, maxWhy)
		p.Ignored = append(p.Ignored, file)
	}
	value, err := json.Marshal(p)
	if err == nil && len(value) > maxPublished {
		return "", fmt.Errorf("%d static pods make an annotation of %d bytes, more than %d", len(e.Pods), len(value), maxPublished)
	}
	return string(value), err
}

// Decode reads the annotation's value and who published it.
func Decode(value string) (Expected, string, error) {
	var p published
	if err := json.Unmarshal([]byte(value), &p); err != nil {
		return Expected{}, "", fmt.Errorf("reading the annotation %s: %w", StaticPodsAnnotation, err)
	}
	e := Expected{Source: p.Source, BootID: p.BootID, Ignored: p.Ignored}
	var err error
	if e.Observed, err = time.Parse(time.RFC3339, p.Observed); err != nil {
		return Expected{}, "", fmt.Errorf("reading the annotation %s: observed: %w", StaticPodsAnnotation, err)
	}
	for _, pod := range p.Pods {
		cpu, err := quantity(pod.CPU)
		if err != nil {
			return Expected{}, "", fmt.Errorf("reading the annotation %s: cpu of %s: %w", StaticPodsAnnotation, pod.Name, err)
		}
		memory, err := quantity(pod.Memory)
		if err != nil {
			return Expected{}, "", fmt.Errorf("reading the annotation %s: memory of %s: %w", StaticPodsAnnotation, pod.Name, err)
		}
		e.Pods = append(e.Pods, StaticPod{Namespace: pod.Namespace, Name: pod.Name, Hash: pod.Hash, CPU: cpu, Memory: memory})
	}
	return e, p.Agent, nil
}

// plain is a quantity of a size that a machine can have.
var plain = regexp.MustCompile(`^[0-9]{1,40}(\.[0-9]{1,40})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`)

// quantity parses what anybody who may write to a Node may have put there: with an exponent of a billion, parsing and
// comparing would take hours (gopkg.in/inf.v0 writes the digits out).
func quantity(s string) (resource.Quantity, error) {
	if !plain.MatchString(s) {
		return resource.Quantity{}, errors.New("not a quantity of a machine")
	}
	return resource.ParseQuantity(s)
}

// Published returns the expected set that the Node bears. One of another boot counts for nothing.
func Published(node *corev1.Node) Expected {
	value, there := node.Annotations[StaticPodsAnnotation]
	if !there {
		return Expected{Unknown: "no rollcall-agent has published the node's static pods"}
	}
	e, _, err := Decode(value)
	if err != nil {
		return Expected{Unknown: err.Error()}
	}
	if now := node.Status.NodeInfo.BootID; e.BootID != now {
		return Expected{Unknown: fmt.Sprintf("what is published is of boot %s, the node is in boot %s", orNone(e.BootID), orNone(now))}
	}
	return e
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// shorten cuts s to at most n bytes at a rune's boundary.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	cut := 0
	for i := range s {
		if i > n-len("…") {
			break
		}
		cut = i
	}
	return s[:cut] + "…"
}
