package proof

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A right is a verb on a resource, as RBAC has them.
type right struct{ verb, group, resource string }

func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// A request is one that asked for a right, and its answer.
type request struct {
	right
	namespace, name string
	status          int
	message         string // of a refusal
}

func (q request) String() string { return fmt.Sprintf("%d for %s: %s", q.status, q.right, q.message) }

// A door stands between one program and the API server and remembers what is asked for. It changes nothing.
type door struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy

	mu     sync.Mutex
	asked  []request              // guarded by mu, as all below
	before map[right]func([]byte) // called once, with the body of the first such request, before that goes through
}

// newDoor opens a door to the API server that the configuration names. Who passes brings credentials of its own.
func newDoor(t *testing.T, config *rest.Config) *door {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	d := &door{before: map[right]func([]byte){}}
	d.proxy = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, ModifyResponse: d.heard, ErrorLog: log.New(io.Discard, "", 0),
	}
	d.server = httptest.NewUnstartedServer(d)
	d.server.EnableHTTP2 = true
	d.server.Config.ErrorLog = d.proxy.ErrorLog
	d.server.StartTLS()
	t.Cleanup(func() {
		d.server.CloseClientConnections() // watches last for ever
		d.server.Close()
	})
	return d
}

// ca is the certificate that clients need to know the door by.
func (d *door) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.server.Certificate().Raw})
}

// once has f called before the first request for the right goes through, so that what f does comes between the program's
// look and its write.
func (d *door) once(r right, f func(body []byte)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before[r] = f
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if q, ok := parse(r.Method, r.URL); ok {
		d.mu.Lock()
		f := d.before[q.right]
		delete(d.before, q.right)
		d.mu.Unlock()
		if f != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			f(body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
	}
	d.proxy.ServeHTTP(w, r)
}

// heard notes the answer to a request for a resource.
func (d *door) heard(response *http.Response) error {
	q, ok := parse(response.Request.Method, response.Request.URL)
	if !ok {
		return nil
	}
	q.status = response.StatusCode
	if q.status == http.StatusForbidden {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		q.message = message(body)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, q)
	return nil
}

// message is that of a Status, whichever its encoding: of one in protobuf the printable part.
func message(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil {
		return status.Message
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(body))
}

// refused are the requests that were answered 403 for want of a right; a namespace that is being deleted takes nothing new.
func (d *door) refused() (refused []request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.asked {
		if q.status == http.StatusForbidden && !strings.Contains(q.message, "because it is being terminated") {
			refused = append(refused, q)
		}
	}
	return refused
}

// used are the rights that were asked for, sorted.
func (d *door) used() []right {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[right]bool{}
	for _, q := range d.asked {
		seen[q.right] = true
		if q.resource == "pods/portforward" {
			// The API server asks for it behind a WebSocket's GET (k8s.io/kubernetes pkg/registry/core/pod/rest/subresources.go).
			seen[right{"create", q.group, q.resource}] = true
		}
	}
	return sorted(seen)
}

func sorted(rights map[right]bool) []right {
	var list []right
	for r := range rights {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b right) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// parse reads the right that a request asks for from its path (k8s.io/apiserver pkg/endpoints/request/requestinfo.go). It is
// false for what needs no right, such as discovery.
func parse(method string, u *url.URL) (q request, ok bool) {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		q.group, parts = parts[1], parts[3:]
	default:
		return q, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource = parts[0]
	if len(parts) > 1 {
		q.name = parts[1]
	}
	if len(parts) > 2 {
		q.resource += "/" + parts[2]
	}
	q.verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[method]
	switch watch := u.Query().Get("watch"); {
	case method != http.MethodGet:
	case q.name != "":
		q.verb = "get"
	case watch == "true" || watch == "1":
		q.verb = "watch"
	default:
		q.verb = "list"
	}
	return q, q.verb != ""
}

func TestParse(t *testing.T) {
	for path, want := range map[string]string{
		"GET /api/v1/pods":                                            "list pods",
		"GET /api/v1/pods?watch=true":                                 "watch pods",
		"GET /api/v1/namespaces/a":                                    "get namespaces",
		"GET /api/v1/namespaces/a/pods/p":                             "get pods",
		"PATCH /api/v1/namespaces/a/pods/p/status":                    "patch pods/status",
		"POST /api/v1/namespaces/a/pods/p/portforward":                "create pods/portforward",
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/l":      "update leases.coordination.k8s.io",
		"DELETE /apis/rollcall.dev/v1alpha1/namespaces/a/podlosses/l": "delete podlosses.rollcall.dev",
		"GET /apis/apps/v1":                                           "",
		"GET /version":                                                "",
	} {
		method, address, _ := strings.Cut(path, " ")
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if q, ok := parse(method, u); ok {
			got = q.right.String()
		}
		if got != want {
			t.Errorf("%s asks for %q, want %q", path, got, want)
		}
	}
}
