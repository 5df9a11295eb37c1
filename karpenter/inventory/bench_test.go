package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// podJSON is a pod as a cluster has it, about 2 KiB as JSON without white space.
func podJSON(n int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"checksum/config":"2f7c1e0b8a9d4c6e5f3a1b2c4d6e8f0a9b7c5d3e1f2a4b6c8d0e2f4a6b8c0d2e","prometheus.io/scrape":"true"},`+
		`"creationTimestamp":"2026-12-01T07:00:00Z","generateName":"web-7d9f6c5b84-","labels":{"app.kubernetes.io/name":"web","app.kubernetes.io/instance":"web-%[1]d","pod-template-hash":"7d9f6c5b84"},"name":"web-7d9f6c5b84-%[1]d","namespace":"team-%[2]d",`+
		`"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-7d9f6c5b84","uid":"167e2b6c-d7a1-5835-82c6-ec1dd94fad94"}],"resourceVersion":"48213","uid":"ad71f760-d87f-5808-9efd-%012[1]d"},`+
		`"spec":{"containers":[{"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"NAMESPACE","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}],"image":"registry.example.com/team/web:1.4.2","imagePullPolicy":"IfNotPresent","name":"main",`+
		`"ports":[{"containerPort":8080,"name":"http","protocol":"TCP"}],"readinessProbe":{"httpGet":{"path":"/ready","port":"http","scheme":"HTTP"},"periodSeconds":10},"resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"256Mi"}},`+
		`"volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kube-api-access","readOnly":true}]}],"nodeName":"node-%[3]d","priority":0,"restartPolicy":"Always","schedulerName":"default-scheduler","serviceAccountName":"default","terminationGracePeriodSeconds":30,`+
		`"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}],`+
		`"volumes":[{"name":"kube-api-access","projected":{"defaultMode":420,"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}}]}}]},`+
		`"status":{"conditions":[{"lastTransitionTime":"2026-12-01T07:00:00Z","status":"True","type":"Ready"}],"phase":"Running","podIP":"10.0.0.1","startTime":"2026-12-01T07:00:00Z"}}`, n, n%50, n%200)
}

// podList is a List of n pods, indented as kubectl prints it.
func podList(t testing.TB, n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"v1","items":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(podJSON(i))
	}
	b.WriteString(`],"kind":"List","metadata":{"resourceVersion":""}}`)
	var indented bytes.Buffer
	if err := json.Indent(&indented, b.Bytes(), "", "    "); err != nil {
		t.Fatal(err)
	}
	return indented.Bytes()
}

// podListYAML is podList as YAML, written item by item.
func podListYAML(t testing.TB, n int) []byte {
	var b bytes.Buffer
	b.WriteString("apiVersion: v1\nitems:\n")
	for i := range n {
		text, err := yaml.JSONToYAML(podJSON(i))
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("- " + string(bytes.ReplaceAll(bytes.TrimSpace(text), []byte("\n"), []byte("\n  "))) + "\n")
	}
	b.WriteString("kind: List\nmetadata:\n  resourceVersion: \"\"\n")
	return b.Bytes()
}

func BenchmarkLoadJSON10k(b *testing.B) { benchmarkLoad(b, podList(b, 10_000)) }

func BenchmarkLoadYAML10k(b *testing.B) { benchmarkLoad(b, podListYAML(b, 10_000)) }

// benchmarkLoad reports the highest heap seen above the input's own, in MB.
func benchmarkLoad(b *testing.B, input []byte) {
	b.SetBytes(int64(len(input)))
	b.ReportAllocs()
	peak := 0.0
	for b.Loop() {
		runtime.GC()
		stop := watchHeap()
		inv, err := Load([]string{Stdin}, onlyReader{bytes.NewReader(input)})
		if err != nil {
			b.Fatal(err)
		}
		peak = max(peak, stop())
		runtime.KeepAlive(inv)
	}
	b.ReportMetric(peak, "peak-MB")
}

type onlyReader struct{ io.Reader }

// watchHeap samples the heap until stop, which returns its highest growth in MB.
func watchHeap() (stop func() float64) {
	read := func() float64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	start, peak := read(), 0.0
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			peak = max(peak, read()-start)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() float64 {
		close(done)
		wg.Wait()
		return peak
	}
}
