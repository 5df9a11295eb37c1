package gate_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/readiness"
	"github.com/rollcall-dev/rollcall/readiness/gate"
)

// One node through every reason, in the order of a life: joining, settling, late and replaced manifests, a forged
// annotation, a reboot.
func TestReasons(t *testing.T) {
	l := newLab(t)
	l.start(nil)
	n := l.node("a")
	n.becomes(corev1.ConditionUnknown, readiness.KubeletNotReady)

	n.expect(map[string]string{"proxy": "p1", "tunnel": "t1"})
	if c := n.becomes(corev1.ConditionFalse, readiness.MirrorMissing); !strings.Contains(c.Message, n.pod("proxy")) || !strings.Contains(c.Message, n.pod("tunnel")) {
		t.Errorf("the message is %q", c.Message)
	}
	// An ordinary pod of the name is no mirror.
	n.mirror("proxy", "", func(p *corev1.Pod) { p.Annotations, p.Spec.NodeName = nil, "" })
	n.eventually("the ordinary pod is named", func(context.Context) (bool, error) {
		c := readiness.ConditionOf(n.get(), readiness.DefaultCondition)
		return strings.Contains(c.Message, "an ordinary pod of that name stands in its place"), nil
	})
	n.unmirror("proxy")
	n.mirror("proxy", "p0")
	n.mirror("tunnel", "t1")
	n.becomes(corev1.ConditionFalse, readiness.MirrorStale)
	n.unmirror("proxy")
	making := time.Now()
	n.mirror("proxy", "p1")
	released := n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	if settled := time.Since(making); settled < time.Second {
		t.Errorf("True %s after the last mirror began to be made", settled)
	}
	if age := time.Since(released.LastTransitionTime.Time); age < 0 || age > patience {
		t.Errorf("the transition was %s ago", age)
	}

	// A late manifest, and its replacement.
	n.expect(map[string]string{"proxy": "p1", "tunnel": "t1", "late": "l1"})
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)
	n.mirror("late", "l1")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	n.expect(map[string]string{"proxy": "p1", "tunnel": "t1", "late": "l2"})
	n.becomes(corev1.ConditionFalse, readiness.MirrorStale)
	n.unmirror("late")
	n.mirror("late", "l2")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)

	// A mirror that is being deleted, and is gone.
	n.unmirror("late")
	n.mirror("late", "l2", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/stays"} })
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	n.unmirror("late")
	n.becomes(corev1.ConditionFalse, readiness.MirrorStale)
	_, err := l.client.CoreV1().Pods(n.namespace).Patch(t.Context(), n.pod("late"), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	l.must(err)
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)

	// What is said of another boot counts for nothing, whoever says it.
	n.publish("boot-0", nil)
	n.becomes(corev1.ConditionUnknown, readiness.KubeletNotReady)
	n.expect(map[string]string{"proxy": "p1"})
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	n.boot("boot-2")
	n.becomes(corev1.ConditionUnknown, readiness.KubeletNotReady)
	n.publish("boot-2", nil)
	n.becomes(corev1.ConditionTrue, readiness.NoStaticPods)
}

// A node of Karpenter's is not True before Karpenter has registered it; any node not while it bears Karpenter's taint.
func TestRegistration(t *testing.T) {
	l := newLab(t)
	l.start(nil)
	pooled := l.node("pooled", func(n *corev1.Node) { n.Labels = map[string]string{"karpenter.sh/nodepool": "default"} })
	tainted := l.node("tainted", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute})
	})
	for _, n := range []*node{pooled, tainted} {
		h := n.follow()
		n.expect(nil)
		n.becomes(corev1.ConditionFalse, readiness.AwaitingRegistration)
		if slices.Contains(h.all(), "True "+readiness.NoStaticPods) {
			t.Errorf("%s was True before: %v", n.name, h.all())
		}
	}
	pooled.patch(`{"metadata":{"labels":{"karpenter.sh/registered":"true"}}}`)
	tainted.patch(`{"spec":{"taints":[{"key":"` + readiness.TaintKey + `","effect":"NoSchedule"}]}}`)
	pooled.becomes(corev1.ConditionTrue, readiness.NoStaticPods)
	tainted.becomes(corev1.ConditionTrue, readiness.NoStaticPods)
}

// A Node that is made again under its name starts anew: the mirrors of the former one do not count, nor does what was
// published of it.
func TestRecreatedNode(t *testing.T) {
	l := newLab(t)
	l.start(nil)
	n := l.node("a")
	n.expect(map[string]string{"proxy": "p1"})
	former := n.mirror("proxy", "p1")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)

	l.must(l.client.CoreV1().Nodes().Delete(t.Context(), n.name, metav1.DeleteOptions{}))
	n.create()
	h := n.follow()
	n.expect(map[string]string{"proxy": "p1"})
	// The former mirror is there until the garbage collector has seen that its owner is not.
	n.eventually("the former mirror does not count", func(context.Context) (bool, error) {
		c := readiness.ConditionOf(n.get(), readiness.DefaultCondition)
		return c != nil && c.Status == corev1.ConditionFalse, nil
	})
	n.eventually("the former mirror is gone", func(ctx context.Context) (bool, error) {
		n.unmirror("proxy")
		list, err := l.client.CoreV1().Pods(n.namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + former.Name})
		return err == nil && len(list.Items) == 0, err
	})
	before := len(h.all())
	if slices.ContainsFunc(h.all(), func(s string) bool { return strings.HasPrefix(s, "True") }) {
		t.Errorf("True by the former Node's mirror: %v", h.all())
	}
	n.mirror("proxy", "p1")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	if before == 0 {
		t.Error("nothing was followed")
	}
}

// Heartbeats of the node and of its pods wake nobody and cost no write; a condition that somebody takes away comes back.
func TestHeartbeatsWriteNothing(t *testing.T) {
	l := newLab(t)
	r := l.start(nil)
	n, marker := l.node("a"), l.node("marker")
	n.expect(map[string]string{"proxy": "p1"})
	n.mirror("proxy", "p1")
	standing := n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	// The watch has brought the write back once the last one is looked at: the marker's comes later.
	marker.expect(nil)
	marker.becomes(corev1.ConditionTrue, readiness.NoStaticPods)
	writes, looks := l.writes(r), r.seen.looked(n.name)
	for i := range 20 {
		n.patch(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"2100-01-01T00:00:`+string(rune('0'+i/10))+string(rune('0'+i%10))+`Z"}]}}`, "status")
		_, err := l.client.CoreV1().Pods(n.namespace).Patch(t.Context(), n.pod("proxy"), types.MergePatchType,
			[]byte(`{"status":{"phase":"Running","message":"`+strings.Repeat("x", i)+`"}}`), metav1.PatchOptions{}, "status")
		l.must(err)
	}
	marker.publish("boot-0", nil)
	marker.becomes(corev1.ConditionUnknown, readiness.KubeletNotReady)
	if got := l.writes(r) - writes; got != 1 {
		t.Errorf("%d writes while 20 heartbeats came, want the marker's", got)
	}
	if got := r.seen.looked(n.name) - looks; got != 0 {
		t.Errorf("the node was looked at %d times", got)
	}
	if c := n.becomes(corev1.ConditionTrue, readiness.AllMirrored); !c.LastTransitionTime.Equal(&standing.LastTransitionTime) {
		t.Errorf("the transition moved from %s to %s", standing.LastTransitionTime, c.LastTransitionTime)
	}
	n.patch(`{"status":{"conditions":[{"$patch":"delete","type":"`+readiness.DefaultCondition+`"}]}}`, "status")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
}

// writes counts the gate's write requests.
func (l *lab) writes(r *running) (sum int) {
	l.Helper()
	writes, err := l.cluster.Writes(r.agent)
	l.must(err)
	for _, count := range writes {
		sum += count
	}
	return sum
}

// A leader that was stopped in the middle of a write and comes back when another leads cannot release the node: the
// interleaving above writeCondition.
func TestDeposedLeadersWriteFails(t *testing.T) {
	l := newLab(t)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	answers := make(chan int, 1)
	deposed := l.start(func(_ *gate.Options, config *rest.Config) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if request.Method != http.MethodPatch || !says(request, readiness.AllMirrored) {
					return next.RoundTrip(request)
				}
				once.Do(func() { close(stopped) })
				<-goOn
				response, err := next.RoundTrip(request)
				if err == nil {
					answers <- response.StatusCode
				}
				return response, err
			})
		})
	})
	n := l.node("a")
	n.expect(map[string]string{"proxy": "p1"})
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)
	n.mirror("proxy", "p0")
	n.becomes(corev1.ConditionFalse, readiness.MirrorStale)
	n.unmirror("proxy")
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)
	n.mirror("proxy", "p1")
	<-stopped
	n.unmirror("proxy")
	n.mirror("proxy", "p0")

	h := n.follow()
	next := l.start(nil)
	n.becomes(corev1.ConditionFalse, readiness.MirrorStale)
	close(goOn)
	if code := <-answers; code != http.StatusConflict {
		t.Errorf("the deposed leader's write is answered with %d, want %d", code, http.StatusConflict)
	}
	deposed.depose()
	n.unmirror("proxy")
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)
	next.stop()
	if slices.ContainsFunc(h.all(), func(s string) bool { return strings.HasPrefix(s, "True") }) {
		t.Errorf("the node was True: %v", h.all())
	}
}

// says tells whether the request's body has the text, and leaves the body as it was.
func says(request *http.Request, text string) bool {
	if request.Body == nil {
		return false
	}
	body, err := io.ReadAll(request.Body)
	request.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil && bytes.Contains(body, []byte(text))
}

// With --release-taint the one taint goes, all others stay, and it is done once in a Node's life, whoever puts it back.
// Without it the taint is somebody else's.
func TestReleaseTaint(t *testing.T) {
	l := newLab(t)
	other := corev1.Taint{Key: "example.com/other", Value: "x", Effect: corev1.TaintEffectNoSchedule}
	n := l.node("a", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, other) })
	r := l.start(func(o *gate.Options, _ *rest.Config) { o.ReleaseTaint = true })
	n.expect(map[string]string{"proxy": "p1"})
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)
	if !readiness.DefaultTaint.On(n.get()) {
		t.Fatal("released early")
	}
	n.mirror("proxy", "p1")
	n.eventually("the taint goes", func(context.Context) (bool, error) { return !readiness.DefaultTaint.On(n.get()), nil })
	object := n.get()
	if c := readiness.ConditionOf(object, readiness.DefaultCondition); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("released with the condition %+v", c)
	}
	if len(object.Spec.Taints) != 1 || object.Spec.Taints[0].Key != other.Key || object.Annotations[domain.Released] != string(object.UID) {
		t.Errorf("taints %v, annotations %v", object.Spec.Taints, object.Annotations)
	}
	// It comes back by another hand, and the mirror is replaced: a released node is not released again, nor held by us.
	n.patch(`{"spec":{"taints":[{"key":"` + readiness.TaintKey + `","effect":"NoSchedule"}]}}`)
	n.unmirror("proxy")
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)
	n.mirror("proxy", "p1")
	n.becomes(corev1.ConditionTrue, readiness.AllMirrored)
	if !readiness.DefaultTaint.On(n.get()) || r.seen.decided(n.name, gate.DecidedRelease) != 1 {
		t.Errorf("released %d times", r.seen.decided(n.name, gate.DecidedRelease))
	}
	n.patch(`{"spec":{"taints":null}}`)
	n.unmirror("proxy")
	n.becomes(corev1.ConditionFalse, readiness.MirrorMissing)
	if len(n.get().Spec.Taints) != 0 {
		t.Errorf("a taint was put on: %v", n.get().Spec.Taints)
	}
}
