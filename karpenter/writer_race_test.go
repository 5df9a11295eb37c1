package karpenter_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Between the verdict that a pod stays and the removal of its marker the pod is evicted:
//
//  1. the controller decides to remove the marker of race, whose node goes no more
//  2. an eviction gives race a deletionTimestamp
//  3. the controller's patch arrives
//
// The test does 2 within 3, before the patch is sent. The pod is being lost, and keeps its marker.
func TestEvictedAtTheRemovalKeepsItsMarker(t *testing.T) {
	l := newLab(t)
	node := l.apiNode()
	l.barePod("race", node)
	var (
		once    sync.Once
		mu      sync.Mutex
		answers []int
		evicted error
	)
	r := l.startController(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodPatch || !strings.HasSuffix(request.URL.Path, "/pods/race/status") {
				return next.RoundTrip(request)
			}
			body, err := io.ReadAll(request.Body)
			if err != nil {
				return nil, err
			}
			request.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte("null")) {
				return next.RoundTrip(request)
			}
			once.Do(func() {
				grace := int64(600) // no kubelet ends it sooner
				evicted = l.client.CoreV1().Pods(l.namespace).Delete(t.Context(), "race", metav1.DeleteOptions{GracePeriodSeconds: &grace})
			})
			response, err := next.RoundTrip(request)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, response.StatusCode)
			}
			return response, err
		})
	})
	l.taint(node, true)
	before := l.waitMark("race", true)
	l.taint(node, false)
	l.settled()
	if text, marked := l.mark("race"); !marked || text != before {
		t.Errorf("the marker of a pod that is being lost is %q, want %q", text, before)
	}
	r.stop()
	l.must(evicted)
	if len(answers) != 1 || answers[0] != http.StatusConflict {
		t.Errorf("the API server answered %v to the removal, want one 409", answers)
	}
}
