package losses

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Each case is a pod as the server has it, and the manifest that remains.
func TestManifest(t *testing.T) {
	for name, tc := range map[string]struct{ pod, want string }{
		"what server and admission add": {`
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  generateName: w-
  uid: 1-2-3
  resourceVersion: "7"
  generation: 1
  creationTimestamp: "2026-12-01T19:00:00Z"
  deletionTimestamp: "2026-12-01T19:10:00Z"
  deletionGracePeriodSeconds: 30
  managedFields: [{manager: kubectl}]
  labels: {app: web}
  finalizers: [example.com/keep, foregroundDeletion]
  annotations:
    rollcall.dev/at-risk: '{}'
    kubectl.kubernetes.io/last-applied-configuration: '{}'
    kubernetes.io/limit-ranger: 'LimitRanger plugin set: cpu request'
    example.com/team: a
spec:
  nodeName: n1
  serviceAccount: bot
  serviceAccountName: bot
  priority: 0
  preemptionPolicy: PreemptLowerPriority
  overhead: {cpu: 10m}
  ephemeralContainers: [{name: debug, image: i:1}]
  containers:
  - name: c
    image: i:1
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: kube-api-access-x7f2p, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  initContainers:
  - name: i
    image: i:1
    volumeMounts:
    - {name: kube-api-access-x7f2p, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  volumes:
  - {name: data, emptyDir: {}}
  - {name: kube-api-access-x7f2p, projected: {sources: []}}
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
status: {phase: Running}
`, `
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  labels: {app: web}
  finalizers: [example.com/keep]
  annotations: {example.com/team: a}
spec:
  serviceAccountName: bot
  containers:
  - {name: c, image: "i:1", volumeMounts: [{name: data, mountPath: /data}]}
  initContainers:
  - {name: i, image: "i:1"}
  volumes: [{name: data, emptyDir: {}}]
`},
		"what a person wrote that looks like it": {`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  serviceAccountName: bot
  fieldOfALaterVersion: {kept: true}
  containers:
  - name: c
    volumeMounts:
    - {name: bot-token-abcde, mountPath: /token}
    - {name: kube-api-access-mine, mountPath: /api}
    - {name: kube-api-access-mine, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}
  volumes:
  - {name: bot-token-abcde, secret: {secretName: bot-token-abcde}}
  - {name: kube-api-access-mine, projected: {sources: []}}
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}
  - {key: example.com/gpu, operator: Exists}
`, `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  serviceAccountName: bot
  fieldOfALaterVersion: {kept: true}
  containers:
  - name: c
    volumeMounts:
    - {name: bot-token-abcde, mountPath: /token}
    - {name: kube-api-access-mine, mountPath: /api}
    - {name: kube-api-access-mine, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}
  volumes:
  - {name: bot-token-abcde, secret: {secretName: bot-token-abcde}}
  - {name: kube-api-access-mine, projected: {sources: []}}
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}
  - {key: example.com/gpu, operator: Exists}
`},
		"a token Secret of before 1.22": {`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  serviceAccountName: default
  containers:
  - name: c
    volumeMounts: [{name: default-token-abcde, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]
  volumes: [{name: default-token-abcde, secret: {secretName: default-token-abcde}}]
`, `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  serviceAccountName: default
  containers: [{name: c}]
`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fromYAML(t, tc.pod)
			before := pod.DeepCopy()
			text, err := Manifest(pod)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(before, pod) {
				t.Error("the pod was changed")
			}
			got := &unstructured.Unstructured{}
			if err := json.Unmarshal(text, &got.Object); err != nil {
				t.Fatal(err)
			}
			want, err := yaml.YAMLToJSON([]byte(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			if same, gotText := sameJSON(t, text, want), string(text); !same {
				t.Errorf("got  %s\nwant %s", gotText, want)
			}
		})
	}
}

func TestManifestOfNoPod(t *testing.T) {
	if text, err := Manifest(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}); err == nil {
		t.Errorf("got %s", text)
	}
}

func fromYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
