package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
	"github.com/rollcall-dev/rollcall/karpenter/inventory"
)

// lists are the answers of an API server that has only these; all else is not served.
var lists = map[string]string{
	"/api/v1/nodes": `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n1"},
		"status":{"allocatable":{"cpu":"4"},"conditions":[{"type":"Ready","status":"True"}]}}]}`,
	"/api/v1/pods": `{"apiVersion":"v1","kind":"PodList","items":[
		{"metadata":{"name":"bare","namespace":"shop","uid":"a"},"spec":{"nodeName":"former"}},
		{"metadata":{"name":"fleet","namespace":"shop","uid":"b","ownerReferences":[{"apiVersion":"example.com/v1","kind":"Fleet","name":"f","uid":"f","controller":true}]},"spec":{"nodeName":"n1"}},
		{"metadata":{"name":"sum-1","namespace":"etl","uid":"c","ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"sum","uid":"s","controller":true}]},"spec":{"nodeName":"former"}},
		{"metadata":{"name":"sum-2","namespace":"etl","uid":"d","ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"sum","uid":"s","controller":true}]},"spec":{"nodeName":"n1"}}]}`,
	"/apis/batch/v1/jobs": `{"apiVersion":"batch/v1","kind":"JobList","items":[{"metadata":{"name":"sum","namespace":"etl","uid":"s"},"spec":{"completions":2,"parallelism":2,"backoffLimit":0}}]}`,
	"/apis":               `{"kind":"APIGroupList","groups":[]}`,
}

// live is the inventory of a cluster that still has pods of node "former", which it has no more.
func live(t *testing.T) *inventory.Inventory {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, served := lists[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !served {
			w.WriteHeader(http.StatusNotFound)
			list = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		fmt.Fprint(w, list)
	}))
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
	inv, err := inventory.FromCluster(context.Background(), inventory.Clients{Typed: typed, Dynamic: dynamicClient}, inventory.Want{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// Pods of a node that the cluster does not have any more are in the answer, as they are in the controller's.
func TestVanishedNode(t *testing.T) {
	inv := live(t)
	for name, tc := range map[string]struct {
		selection Selection
		want      []string
	}{
		"all":           {Selection{}, []string{"former", "n1"}},
		"disrupted":     {Selection{Disrupted: true}, []string{"former"}},
		"by name":       {Selection{Names: []string{"former"}}, []string{"former"}},
		"another":       {Selection{Names: []string{"n1"}}, []string{"n1"}},
		"by its labels": {Selection{Labels: labels.Everything()}, []string{"n1"}},
	} {
		report := ask(t, inv, tc.selection, Filter{})
		var names []string
		for _, n := range report.Nodes {
			names = append(names, n.Name)
		}
		if !slices.Equal(names, tc.want) {
			t.Errorf("%s: nodes %v, want %v", name, names, tc.want)
		}
	}
	former := ask(t, inv, Selection{Names: []string{"former"}}, Filter{}).Nodes[0]
	want := Disruption{State: karpenter.Committed, Cause: karpenter.NodeDeleted, Since: timestamp(noon)}
	if former.Disruption != want || !former.estimated {
		t.Errorf("the disruption is %+v, want %+v, estimated", former.Disruption, want)
	}
	if len(former.Pods) != 2 || former.Pods[0].Reason != fate.JobWillNotRetry || former.Pods[1].Reason != fate.NoController {
		t.Errorf("pods %+v", former.Pods)
	}
	if len(former.Collateral) != 1 || former.Collateral[0].Name != "sum-2" || former.Collateral[0].On != "n1" {
		t.Errorf("collateral %+v", former.Collateral)
	}
	var unknown *SelectionError
	if _, err := (Selection{Names: []string{"formr"}}).Select(inv, Question{Config: karpenter.DefaultConfig()}); !errors.As(err, &unknown) || unknown.Hint() != "did you mean former, n1?" {
		t.Errorf("a slip in the name: %v", err)
	}
}

// A controller of a kind that the cluster does not serve makes nothing again.
func TestUnservedOwner(t *testing.T) {
	pod := ask(t, live(t), Selection{Names: []string{"n1"}}, Filter{Namespaces: []string{"shop"}}).Nodes[0].Pods[0]
	if pod.Verdict != fate.Lost || pod.Reason != fate.OwnerGone || pod.Certainty != fate.Assumed {
		t.Errorf("got %s %s %s, want Lost OwnerGone Assumed", pod.Verdict, pod.Reason, pod.Certainty)
	}
}
