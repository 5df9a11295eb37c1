package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/rollcall-dev/rollcall/internal/informers"
	"github.com/rollcall-dev/rollcall/readiness"
)

// A watch is what the gate remembers of one Node object. Only the worker that has the node's key touches it, but for
// long, which metrics read.
type watch struct {
	uid      types.UID
	since    time.Time // when the gate first saw the Node
	settling readiness.Settling
	// waiting is being held for want of a condition that is True, forgotten being held though it is.
	waiting, forgotten readiness.Holding
	causes             []cause
	// own is the Node as the last request of the gate's own returned it, until the cache has caught up.
	own *corev1.Node
	// said is what was said last on a subject: of a warning, and of all that a dry run would have done.
	said map[string]string

	long *long // guarded by Gate.mu; nil unless the node is held for longer than the warning allows
}

// long is what is said of a node that is held for long.
type long struct {
	since  time.Time
	reason string
	pods   []string // namespace/name
	causes []cause
}

// watchOf returns what is remembered of the Node; nothing of one that had its name before.
func (g *Gate) watchOf(node *corev1.Node) *watch {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.known[node.Name]
	if w == nil || w.uid != node.UID {
		w = &watch{uid: node.UID, since: g.options.Clock(), said: map[string]string{}}
		g.known[node.Name] = w
	}
	return w
}

// forget drops a node that the gate no longer watches over.
func (g *Gate) forget(name string) {
	g.mu.Lock()
	_, known := g.known[name]
	delete(g.known, name)
	g.mu.Unlock()
	if known {
		g.options.Observer.Left(name)
	}
}

// latest prefers the answer to an own request to a cache that is older than it. Without this, a reconcile that comes between
// a write and its watch event would write the same again, against a version that is no more.
func (w *watch) latest(cached *corev1.Node) *corev1.Node {
	if w.own == nil {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, w.own.ResourceVersion); err != nil || order >= 0 {
		w.own = nil
		return cached
	}
	return w.own
}

// take remembers the Node as a request of the gate's own returned it.
func (w *watch) take(node *corev1.Node) *corev1.Node {
	_, _ = informers.Trim(node) // in place; it knows no error
	w.own = node
	return node
}

// says tells whether the text is new on the subject.
func (w *watch) says(subject, text string) bool {
	if w.said[subject] == text {
		return false
	}
	w.said[subject] = text
	return true
}
