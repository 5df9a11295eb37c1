// Package forward owns the way from a person's machine to the controller's stream: it finds the pod that holds the Lease
// and forwards a port to it, in this process. Kubernetes' own access control is the only door (DESIGN.md section 8). It
// reads nothing of what comes through.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// A Dialer opens streams of the controller in a cluster. Each Dial asks anew who leads.
type Dialer struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	lease     string
	port      int
}

var _ stream.Dialer = (*Dialer)(nil)

// New makes a Dialer to the holder of the Lease in the controller's namespace, at that port in its pod.
func New(config *rest.Config, namespace, lease string, port int) (*Dialer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return &Dialer{config, client, namespace, lease, port}, nil
}

// Dial implements stream.Dialer.
func (d *Dialer) Dial(ctx context.Context) (*stream.Connection, error) {
	holder, pod, err := d.leader(ctx)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return d.connect(ctx, pod) }
	body, err := stream.Get(ctx, dial, "localhost:"+strconv.Itoa(d.port), stream.StreamPath)
	if err != nil {
		return nil, d.explain(ctx, err, pod)
	}
	return &stream.Connection{Body: d.whileHeld(ctx, body, holder), Peer: d.namespace + "/" + pod}, nil
}

// leader returns the holder of the Lease and its pod: a holder's identity begins with the pod's name and "_", as
// rollcall-controller makes it.
func (d *Dialer) leader(ctx context.Context) (holder, pod string, err error) {
	lease, err := d.client.CoordinationV1().Leases(d.namespace).Get(ctx, d.lease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", "", &stream.ConnectError{
			Problem: fmt.Sprintf("no controller leads in this cluster: there is no Lease %s/%s", d.namespace, d.lease),
			Advice:  "install rollcall-controller, or name where it is: --controller-namespace and --lease", Err: err,
		}
	case err != nil:
		return "", "", d.refused(ctx, err, "get", "leases", d.lease)
	}
	holder = holderOf(lease)
	if holder == "" {
		return "", "", &stream.ConnectError{Problem: fmt.Sprintf("no controller leads: nobody holds the Lease %s/%s", d.namespace, d.lease)}
	}
	name, _, _ := strings.Cut(holder, "_")
	object, err := d.client.CoreV1().Pods(d.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", "", &stream.ConnectError{
			Problem: fmt.Sprintf("the Lease %s/%s is held by %q, and there is no pod of that name", d.namespace, d.lease, holder),
			Advice:  "a controller that runs outside of the cluster is reached with --stream-address", Err: err,
		}
	case err != nil:
		return "", "", d.refused(ctx, err, "get", "pods", name)
	case object.Status.Phase != corev1.PodRunning:
		return "", "", &stream.ConnectError{Problem: fmt.Sprintf("pod %s/%s holds the Lease and is %s", d.namespace, name, object.Status.Phase)}
	}
	return holder, name, nil
}

// pluginFailed is how client-go begins what it says of an exec credential plugin that failed; the error has no type
// (k8s.io/client-go plugin/pkg/client/auth/exec RoundTrip).
const pluginFailed = "getting credentials: "

// refused makes of a failed request what a person can act on.
func (d *Dialer) refused(ctx context.Context, err error, verb, resource, name string) error {
	e := &stream.ConnectError{Problem: fmt.Sprintf("cannot %s %s %s/%s: %v", verb, resource, d.namespace, name, err), Err: err}
	switch {
	case apierrors.IsForbidden(err):
		e.Problem = fmt.Sprintf("you may not %s %s in namespace %s", verb, resource, d.namespace)
		e.Advice = fmt.Sprintf("ask for a role there with: get leases; get pods; get and create pods/portforward; test with: kubectl auth can-i %s %s -n %s", verb, resource, d.namespace)
		e.Lasting = true
	case apierrors.IsUnauthorized(err):
		e.Problem, e.Advice, e.Lasting = fmt.Sprintf("the cluster at %s does not accept your credentials", d.config.Host), "log in again, or check --context and --user", true
	case strings.Contains(err.Error(), pluginFailed):
		_, said, _ := strings.Cut(err.Error(), pluginFailed)
		e.Problem, e.Advice, e.Lasting = "the kubeconfig's credential plugin gave no credentials: "+said, "run it by hand, or log in again; --context and --user choose another", true
	case errors.Is(context.Cause(ctx), stream.ErrNoAnswer): // before client-go's own patience, which is longer, and in no words of its own
		e.Problem = fmt.Sprintf("the cluster at %s does not answer: cannot %s %s %s/%s: %v", d.config.Host, verb, resource, d.namespace, name, stream.ErrNoAnswer)
		e.Advice = "check --kubeconfig, KUBECONFIG and --context, and the way there: a VPN, a proxy, a firewall"
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && !errors.Is(err, context.Canceled):
		e.Problem, e.Advice = fmt.Sprintf("no cluster answers at %s: %v", d.config.Host, err), "check --kubeconfig, KUBECONFIG and --context"
	}
	return e
}

// explain tells a refusal of the API server from one of the pod.
func (d *Dialer) explain(ctx context.Context, err error, pod string) error {
	var e *stream.ConnectError
	if !errors.As(err, &e) || e.Err == nil { // the controller's own words
		return err
	}
	if refusal := refusalIn(err); refusal != nil {
		return d.refused(ctx, refusal, "create", "pods/portforward", pod)
	}
	return &stream.ConnectError{
		Problem: fmt.Sprintf("pod %s/%s leads and cannot be reached at port %d: %v", d.namespace, pod, d.port, e.Err),
		Advice:  "its --stream-address may be empty, or have another port: pass that with --stream-port", Err: err,
	}
}

// dialer tries a WebSocket first and SPDY where the server, or a proxy on the way, does not take it, as kubectl does
// (k8s.io/kubectl pkg/cmd/portforward createDialer).
func (d *Dialer) dialer(ctx context.Context, pod string) (httpstream.Dialer, error) {
	address := d.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(d.namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(d.config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", d.config.Host, err)
	}
	bySPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	byWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreamingWithLogger(klog.FromContext(ctx), address, d.config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", d.config.Host, err)
	}
	return portforward.NewFallbackDialerForStreaming(byWebSocket, bySPDY, func(err error) bool {
		return httpstream.IsHTTPSProxyError(err) || upgradeFailure(err) != nil && refusalIn(err) == nil
	}), nil
}

// upgradeFailure is the WebSocket client's own error. The package matters: apimachinery has a type of the same name, which
// it never is.
func upgradeFailure(err error) *httpstream.UpgradeFailureError {
	var failure *httpstream.UpgradeFailureError
	errors.As(err, &failure)
	return failure
}

// refusalIn is the API server's answer within a failed upgrade; nil where something on the way does not know WebSockets.
func refusalIn(err error) error {
	failure := upgradeFailure(err)
	if failure == nil {
		return nil
	}
	switch apierrors.ReasonForError(failure.Cause) {
	case metav1.StatusReasonForbidden, metav1.StatusReasonUnauthorized, metav1.StatusReasonNotFound:
		return failure.Cause
	}
	return nil
}
