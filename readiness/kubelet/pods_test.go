package kubelet

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// answering is a kubelet's /pods without a network, so that time can be the test's.
type answering func() reply

type reply struct {
	status int
	static []string
}

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	reply := a()
	list := corev1.PodList{Items: []corev1.Pod{*podOf("api", "agent", corev1.PodRunning)}}
	for _, name := range reply.static {
		list.Items = append(list.Items, *podOf("file", name, corev1.PodRunning))
	}
	body, err := json.Marshal(list)
	return &http.Response{StatusCode: reply.status, Status: http.StatusText(reply.status), Body: io.NopCloser(strings.NewReader(string(body)))}, err
}

// A kubelet that has just started lists the API's pods only: its first answer counts after twenty seconds without a change,
// and so does the lack of a pod, while more pods count at once; an attempt that fails, as over a restart, begins it all anew.
func TestPods(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[reply]
		now.Store(&reply{status: http.StatusOK})
		source := &Pods{URL: "https://127.0.0.1:10250/pods", TokenFile: token, client: &http.Client{
			Transport: answering(func() reply { return *now.Load() }),
		}}
		var last Answer
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			source.Run(t.Context(), func(a Answer) { last = a })
		}()
		t.Cleanup(func() { <-done })
		for _, step := range []struct {
			name    string
			at      time.Duration // half a second off the attempts, which are made every second
			want    string        // of the answer until then
			waiting bool
			then    reply // from then on
		}{
			{"only pods of the API", 9500 * time.Millisecond, "", true, reply{200, []string{"a"}}},
			{"one more: the time begins anew", 25500 * time.Millisecond, "", true, reply{503, nil}},
			{"a failure", 26500 * time.Millisecond, "", true, reply{200, []string{"a"}}},
			{"it begins anew", 46500 * time.Millisecond, "", true, reply{200, []string{"a"}}},
			{"it has stood", 47500 * time.Millisecond, "a=hash-a", false, reply{200, []string{"a", "b"}}},
			{"more count at once", 48500 * time.Millisecond, "a=hash-a b=hash-b", false, reply{200, nil}},
			{"fewer do not", 60500 * time.Millisecond, "a=hash-a b=hash-b", false, reply{503, nil}},
			{"a restart", 61500 * time.Millisecond, "", true, reply{200, []string{"a"}}},
			{"what was missing before it does not count", 81500 * time.Millisecond, "a=hash-a b=hash-b", false, reply{200, []string{"a"}}},
			{"fewer have stood", 82500 * time.Millisecond, "a=hash-a", false, reply{200, nil}},
		} {
			time.Sleep(time.Until(start.Add(step.at)))
			synctest.Wait()
			if got := names(last.Pods); got != step.want || (last.State == Waiting) != step.waiting {
				t.Errorf("%s: got %+v", step.name, last)
			}
			now.Store(&step.then)
		}
	})
}

// What cannot be, or is more than reading pods, is refused with the way out.
func TestPodsCheck(t *testing.T) {
	for url, want := range map[string]string{
		"http://10.0.0.1:10250/pods":                   "https only",
		"https:///pods":                                "https only",
		"https://%/pods":                               "https only",
		"https://10.96.0.1/api/v1/nodes/n1/proxy/pods": "nodes/proxy",
		"https://10.96.0.1/api/v1/nodes/https:n1:10250%2Fproxy%2Fpods": "nodes/proxy",
		"https://127.0.0.1:10250/pods":                                 "reading the kubelet's CA",
	} {
		err := (&Pods{URL: url, CAFile: filepath.Join(t.TempDir(), "none")}).Check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if want != "reading the kubelet's CA" && !strings.Contains(err.Error(), "--kubelet-pods-url") {
			t.Errorf("%s: no way out: %v", url, err)
		}
	}
}
