package readiness

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A Taint is one by key and effect; its value plays no part, as with the Node Readiness Controller (facts/static-pods.md
// section 3.2).
type Taint struct {
	Key    string
	Effect corev1.TaintEffect
}

// DefaultTaint is that of the Node Readiness Controller's published rule (deploy/readiness-rule.yaml).
var DefaultTaint = Taint{TaintKey, corev1.TaintEffectNoSchedule}

const taintForm = "the form is key[=value][:effect], for example " + TaintKey + ":NoSchedule; the value is not looked at"

// ParseTaint reads key[=value][:effect]. The effect is NoSchedule where none is given.
func ParseTaint(text string) (Taint, error) {
	name, effect, given := strings.Cut(text, ":")
	key, _, _ := strings.Cut(name, "=")
	t := Taint{key, corev1.TaintEffectNoSchedule}
	if given {
		t.Effect = corev1.TaintEffect(effect)
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	switch problems := validation.IsQualifiedName(key); {
	case len(problems) > 0:
		return Taint{}, fmt.Errorf("%q is no key of a taint: %s (%s)", key, strings.Join(problems, "; "), taintForm)
	case !slices.Contains(effects, t.Effect):
		return Taint{}, fmt.Errorf("%q is no effect of a taint: NoSchedule, PreferNoSchedule and NoExecute are (%s)", effect, taintForm)
	}
	return t, nil
}

// String is the form that ParseTaint reads.
func (t Taint) String() string { return t.Key + ":" + string(t.Effect) }

// On tells whether the node bears the taint.
func (t Taint) On(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, t.is) }

func (t Taint) is(other corev1.Taint) bool { return other.Key == t.Key && other.Effect == t.Effect }

// Without is the node's taints but this one.
func (t Taint) Without(node *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), t.is)
}
