package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// An apiServer answers list requests from memory, page by page; what it does not have is not served.
type apiServer struct {
	// objects are, by path, the items of each list; kinds names the list.
	objects map[string][]string
	kinds   map[string]string
	// refused are paths that answer with that status.
	refused map[string]int
	// expires is the path of a list whose first page is too old by the time the second is asked for.
	expires string
	// groups begins what discovery lists.
	groups string

	mu    sync.Mutex
	asked []string // guarded by mu
}

func newAPIServer() *apiServer {
	s := &apiServer{objects: map[string][]string{}, refused: map[string]int{}, kinds: map[string]string{
		"/api/v1/pods": "v1 PodList", "/api/v1/nodes": "v1 NodeList", "/api/v1/namespaces": "v1 NamespaceList",
		"/api/v1/persistentvolumeclaims": "v1 PersistentVolumeClaimList", "/api/v1/persistentvolumes": "v1 PersistentVolumeList",
		"/api/v1/replicationcontrollers": "v1 ReplicationControllerList", "/apis/apps/v1/replicasets": "apps/v1 ReplicaSetList",
		"/apis/apps/v1/statefulsets": "apps/v1 StatefulSetList", "/apis/apps/v1/daemonsets": "apps/v1 DaemonSetList",
		"/apis/batch/v1/jobs": "batch/v1 JobList", "/apis/policy/v1/poddisruptionbudgets": "policy/v1 PodDisruptionBudgetList",
	}}
	s.objects["/api/v1/nodes"] = []string{`{"metadata":{"name":"n1","uid":"n1"}}`}
	s.objects["/api/v1/pods"] = []string{`{"metadata":{"name":"web","namespace":"shop","uid":"p1"},"spec":{"nodeName":"n1"}}`}
	return s
}

func (s *apiServer) serveKarpenter() {
	s.kinds["/apis/karpenter.sh/v1/nodeclaims"] = "karpenter.sh/v1 NodeClaimList"
	s.kinds["/apis/karpenter.sh/v1/nodepools"] = "karpenter.sh/v1 NodePoolList"
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	next := r.URL.Query().Get("continue")
	status := s.refused[r.URL.Path]
	kind, served := s.kinds[r.URL.Path]
	switch {
	case r.URL.Path == "/apis" && status == 0:
		fmt.Fprint(w, `{"kind":"APIGroupList","groups":[`+s.groups+`{"name":"argoproj.io","versions":[{"groupVersion":"argoproj.io/v1alpha1","version":"v1alpha1"}],"preferredVersion":{"groupVersion":"argoproj.io/v1alpha1","version":"v1alpha1"}}]}`)
		return
	case r.URL.Path == "/apis/argoproj.io/v1alpha1":
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"argoproj.io/v1alpha1","resources":[{"name":"workflows/status","kind":"Workflow"},{"name":"workflows","kind":"Workflow","namespaced":true}]}`)
		return
	case status != 0:
		writeStatus(w, status, map[int]string{http.StatusForbidden: "Forbidden"}[status], "")
	case !served:
		writeStatus(w, http.StatusNotFound, "NotFound", "")
	case r.URL.Path == s.expires && next == "1":
		writeStatus(w, http.StatusGone, "Expired", "1-anew")
	default:
		s.page(w, r, kind, next)
	}
}

func writeStatus(w http.ResponseWriter, code int, reason, next string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":%q},"status":"Failure","reason":%q,"code":%d}`, next, reason, code)
}

func (s *apiServer) page(w http.ResponseWriter, r *http.Request, kind, next string) {
	const size = 1 // objects a page, whatever limit was asked for: an API server may give fewer
	items := s.objects[r.URL.Path]
	at, _ := strconv.Atoi(strings.TrimSuffix(next, "-anew"))
	end := min(at+size, len(items))
	if r.URL.Query().Get("limit") == "" {
		end = len(items)
	}
	more := ""
	if end < len(items) {
		more = strconv.Itoa(end)
	}
	version, name, _ := strings.Cut(kind, " ")
	typed := make([]json.RawMessage, 0, size)
	for _, item := range items[at:end] {
		typed = append(typed, json.RawMessage(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,%s`, version, strings.TrimSuffix(name, "List"), item[1:])))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": version, "kind": name, "metadata": map[string]string{"continue": more}, "items": typed})
}

func (s *apiServer) read(t *testing.T, want Want) (*Inventory, error) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return FromCluster(context.Background(), Clients{typed, dynamicClient}, want)
}

func TestFromCluster(t *testing.T) {
	s := newAPIServer()
	s.serveKarpenter()
	s.objects["/api/v1/nodes"] = []string{`{"metadata":{"name":"n1"}}`, `{"metadata":{"name":"n2"},"spec":{"providerID":"a"}}`, `{"metadata":{"name":"n3"}}`}
	s.objects["/apis/apps/v1/replicasets"] = []string{`{"metadata":{"name":"web","namespace":"shop","uid":"rs-1"}}`, `{"metadata":{"name":"api","namespace":"shop","uid":"rs-2"}}`}
	s.objects["/apis/karpenter.sh/v1/nodeclaims"] = []string{`{"metadata":{"name":"c"},"status":{"providerID":"a"}}`}
	s.objects["/apis/karpenter.sh/v1/nodepools"] = []string{`{"metadata":{"name":"default"}}`}
	s.expires = "/api/v1/nodes"
	inv, err := s.read(t, Want{Placement: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.Nodes()) != 3 || len(inv.PodsOn("n1")) != 1 || len(inv.NodePools()) != 1 || inv.NodeClaim(inv.Node("n2")) == nil {
		t.Errorf("%d nodes, %d pods, %d NodePools", len(inv.Nodes()), len(inv.PodsOn("n1")), len(inv.NodePools()))
	}
	for kind, want := range map[string]fate.Presence{"ReplicaSet rs-1": fate.Found, "ReplicaSet rs-2": fate.Gone, "StatefulSet x": fate.Gone, "Deployment x": fate.Unknown} {
		kind, uid, _ := strings.Cut(kind, " ")
		if _, got := inv.Owner("shop", ref("apps/v1", kind, "web", types.UID(uid))); got != want {
			t.Errorf("%s %s is %v, want %v", kind, uid, got, want)
		}
	}
	if len(inv.Notices()) != 0 {
		t.Errorf("notices: %q", inv.Notices())
	}
	for _, request := range s.asked {
		if !strings.HasPrefix(request, "GET /api") || request == "GET /apis" {
			t.Errorf("request %s", request)
		}
	}
	if first := slices.Index(s.asked, "GET /apis/apps/v1/replicasets"); first < slices.Index(s.asked, "GET /api/v1/pods") {
		t.Error("owners were listed before the pods")
	}
}

func TestFromClusterDegrades(t *testing.T) {
	s := newAPIServer()
	s.refused["/apis/apps/v1/replicasets"] = http.StatusForbidden
	inv, err := s.read(t, Want{Placement: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"you may not list replicasets.apps: their pods are assumed to come back",
		"this cluster serves no nodeclaims.karpenter.sh, no nodepools.karpenter.sh",
	}
	if !slices.Equal(inv.Notices(), want) {
		t.Errorf("notices %q\nwant    %q", inv.Notices(), want)
	}
	if _, got := inv.Owner("shop", ref("apps/v1", "ReplicaSet", "web", "x")); got != fate.Unknown {
		t.Errorf("an owner that may not be read is %v, want Unknown", got)
	}

	s = newAPIServer()
	s.refused["/api/v1/pods"] = http.StatusForbidden
	if _, err = s.read(t, Want{}); err == nil || err.Error() != "the cluster: you may not list pods" {
		t.Errorf("without pods: err = %v", err)
	}
	s = newAPIServer()
	s.refused["/apis/batch/v1/jobs"] = http.StatusInternalServerError
	if _, err = s.read(t, Want{}); err == nil || !strings.HasPrefix(err.Error(), "listing jobs.batch: ") {
		t.Errorf("a failing server: err = %v", err)
	}
}

func TestFromClusterOwnerKinds(t *testing.T) {
	s := newAPIServer()
	s.serveKarpenter()
	s.kinds["/apis/argoproj.io/v1alpha1/workflows"] = "argoproj.io/v1alpha1 WorkflowList"
	s.objects["/apis/argoproj.io/v1alpha1/workflows"] = []string{`{"metadata":{"name":"w","namespace":"shop","uid":"w1"},"spec":{"templates":[]},"status":{}}`}
	inv, err := s.read(t, Want{OwnerKinds: []schema.GroupKind{workflowKind, {Group: "argoproj.io", Kind: "Rollout"}, {Group: "example.com", Kind: "Fleet"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		version, kind string
		want          fate.Presence
	}{
		{"argoproj.io/v1alpha1", "Workflow", fate.Found},
		{"argoproj.io/v1alpha1", "Rollout", fate.NotServed},
		{"example.com/v1", "Fleet", fate.NotServed},
		{"example.com/v1", "Truck", fate.Unknown},
	} {
		if _, got := inv.Owner("shop", ref(tc.version, tc.kind, "w", "w1")); got != tc.want {
			t.Errorf("%s is %v, want %v", tc.kind, got, tc.want)
		}
	}
	if len(inv.Notices()) != 2 {
		t.Errorf("notices %q", inv.Notices())
	}
}

// A pod of an owner whose kind the server does not have is answered as the controller answers it.
func TestFromClusterUnservedOwners(t *testing.T) {
	owned := func(name, version, kind string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","ownerReferences":[{"apiVersion":%q,"kind":%q,"name":"o","uid":"o"}]},"spec":{"nodeName":"n1"}}`, name, version, kind)
	}
	const silent = `{"name":"example.org","versions":[{"groupVersion":"example.org/v1","version":"v1"}],"preferredVersion":{"groupVersion":"example.org/v1","version":"v1"}},`
	read := func(s *apiServer) *Inventory {
		s.objects["/api/v1/pods"] = []string{owned("a", "example.com/v1", "Fleet"), owned("b", "argoproj.io/v1alpha1", "Workflow"),
			owned("c", "argoproj.io/v1", "Rollout"), owned("d", "example.org/v1", "Ship"), owned("e", "apps/v1", "ReplicaSet")}
		inv, err := s.read(t, Want{})
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	s := newAPIServer()
	s.groups = silent
	s.refused["/apis/example.org/v1"] = http.StatusServiceUnavailable
	inv := read(s)
	for _, tc := range []struct {
		version, kind string
		want          fate.Presence
	}{
		{"example.com/v1", "Fleet", fate.NotServed},
		{"example.com/v2", "Fleet", fate.NotServed},
		{"argoproj.io/v1alpha1", "Workflow", fate.Unknown},
		{"argoproj.io/v1", "Rollout", fate.NotServed},
		{"example.org/v1", "Ship", fate.Unknown},
		{"apps/v1", "ReplicaSet", fate.Gone},
		{"example.com/v1", "Truck", fate.Unknown}, // no pod has such an owner
	} {
		if _, got := inv.Owner("shop", ref(tc.version, tc.kind, "o", "o")); got != tc.want {
			t.Errorf("%s %s is %v, want %v", tc.version, tc.kind, got, tc.want)
		}
	}
	s = newAPIServer()
	s.refused["/apis"] = http.StatusForbidden
	inv = read(s)
	if _, got := inv.Owner("shop", ref("example.com/v1", "Fleet", "o", "o")); got != fate.Unknown || len(inv.Notices()) == 0 {
		t.Errorf("without discovery it is %v, notices %q", got, inv.Notices())
	}
}

// A node that pods are bound to and that is not there is one that is gone: nodes are listed after pods.
func TestFromClusterVanishedNodes(t *testing.T) {
	s := newAPIServer()
	s.objects["/api/v1/pods"] = append(s.objects["/api/v1/pods"], `{"metadata":{"name":"a","namespace":"shop"},"spec":{"nodeName":"n3"}}`,
		`{"metadata":{"name":"b","namespace":"shop"},"spec":{"nodeName":"n2"}}`, `{"metadata":{"name":"c","namespace":"shop"}}`)
	inv, err := s.read(t, Want{})
	if err != nil {
		t.Fatal(err)
	}
	if v := inv.Vanished(); len(v) != 2 || v[0].Name != "n2" || v[1].Name != "n3" || inv.Node("n2") != nil || len(inv.Nodes()) != 1 {
		t.Errorf("vanished %v, nodes %v", v, inv.Nodes())
	}
	offline, err := load(nodeYAML + "---\n" + podYAML + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {nodeName: n2}\n")
	if err != nil || len(offline.Vanished()) != 0 {
		t.Errorf("offline: %v, %v", offline.Vanished(), err)
	}
}
