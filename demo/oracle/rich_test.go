package oracle

import "sigs.k8s.io/yaml"

// richPod is a static pod that the kubelet runs and that uses much of what one may use.
func richPod() map[string]any {
	var pod map[string]any
	if err := yaml.Unmarshal([]byte(richManifest), &pod); err != nil {
		panic(err) // a slip in this file
	}
	return pod
}

const richManifest = `
apiVersion: v1
kind: Pod
metadata:
  name: rich
  namespace: edge
  labels: {app: rich, tier: control-plane}
  annotations: {example.com/a: b, kubernetes.io/config.source: api}
  finalizers: [example.com/f]
spec:
  restartPolicy: Always
  dnsPolicy: None
  dnsConfig: {nameservers: [10.0.0.10], searches: [cluster.local, "."], options: [{name: ndots, value: "2"}]}
  hostNetwork: true
  hostPID: false
  shareProcessNamespace: false
  terminationGracePeriodSeconds: 30
  activeDeadlineSeconds: 600
  hostname: rich
  subdomain: sub
  priorityClassName: system-node-critical
  priority: 2000001000
  preemptionPolicy: PreemptLowerPriority
  runtimeClassName: runc
  schedulerName: default-scheduler
  enableServiceLinks: true
  automountServiceAccountToken: false
  setHostnameAsFQDN: false
  os: {name: linux}
  overhead: {cpu: 10m, memory: 8Mi}
  resources: {requests: {cpu: "2", memory: 1Gi}, limits: {cpu: "3", memory: 2Gi}}
  nodeSelector: {kubernetes.io/os: linux}
  readinessGates: [{conditionType: example.com/gate}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [a.example, b]}]
  tolerations:
  - {operator: Exists}
  - {key: example.com/k, operator: Equal, value: v, effect: NoExecute, tolerationSeconds: 5}
  - {key: k, operator: Exists, effect: NoSchedule}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: rich}}}}
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: rich}}}
  securityContext:
    runAsUser: 0
    runAsGroup: 0
    fsGroup: 1
    supplementalGroups: [2, 3]
    seccompProfile: {type: RuntimeDefault}
    fsGroupChangePolicy: OnRootMismatch
  volumes:
  - {name: etc, hostPath: {path: /etc/kubernetes, type: Directory}}
  - {name: scratch, emptyDir: {medium: Memory, sizeLimit: 10Mi}}
  - {name: bare}
  - {name: share, nfs: {server: 10.0.0.8, path: /export, readOnly: true}}
  - {name: about, downwardAPI: {defaultMode: 420, items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, mode: 256, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}]}}
  - {name: more, projected: {defaultMode: 292, sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}
  - {name: img, image: {reference: "registry.example/data:1", pullPolicy: IfNotPresent}}
  - {name: disk, iscsi: {targetPortal: 10.0.0.9, iqn: "iqn.2001-04.com.example:storage", lun: 0}}
  - {name: fc, fc: {targetWWNs: ["50060e801049cfd1"], lun: 0}}
  initContainers:
  - name: setup
    image: registry.example/setup:1
    command: [sh]
    resources: {requests: {cpu: 300m}, limits: {cpu: 400m, memory: 64Mi}}
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  - name: sidecar
    image: registry.example/sidecar:1
    restartPolicy: Always
    resources: {limits: {cpu: 50m, memory: 16Mi}}
    startupProbe: {exec: {command: [check]}, failureThreshold: 3}
    lifecycle: {preStop: {sleep: {seconds: 5}}}
  containers:
  - name: main
    image: registry.example/main:1.2
    imagePullPolicy: IfNotPresent
    workingDir: /
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    ports: [{name: https, containerPort: 6443, hostPort: 6443, protocol: TCP}, {containerPort: 53, protocol: UDP, hostIP: 10.0.0.1}]
    env:
    - {name: A, value: b}
    - {name: NODE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}
    resources:
      requests: {cpu: 250m, memory: 128Mi, ephemeral-storage: 1Gi, example.com/gpu: "1"}
      limits: {cpu: "1", memory: 128Mi, example.com/gpu: "1", hugepages-2Mi: 4Mi}
    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
    volumeMounts:
    - {name: etc, mountPath: /etc/kubernetes, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: scratch, mountPath: /scratch, subPath: a/b}
    - {name: about, mountPath: /about}
    - {name: more, mountPath: /more, subPathExpr: $(A)}
    - {name: img, mountPath: /img}
    - {name: share, mountPath: /share, mountPropagation: HostToContainer}
    livenessProbe: {httpGet: {path: /livez, port: 6443, scheme: HTTPS, host: 127.0.0.1, httpHeaders: [{name: X-A, value: b}]}, initialDelaySeconds: 10, timeoutSeconds: 15, periodSeconds: 10, failureThreshold: 8, terminationGracePeriodSeconds: 10}
    readinessProbe: {tcpSocket: {port: https}, successThreshold: 2}
    startupProbe: {grpc: {port: 2379, service: etcd}, failureThreshold: 24}
    lifecycle: {postStart: {exec: {command: [hello]}}, preStop: {httpGet: {port: https}}}
    securityContext: {privileged: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsNonRoot: false, runAsUser: 0, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}, procMount: Default, seccompProfile: {type: Localhost, localhostProfile: profiles/a.json}}
  - name: bridge
    image: registry.example/bridge:1
    stdin: true
    tty: true
    securityContext: {privileged: true}
    volumeMounts: [{name: etc, mountPath: /host, mountPropagation: Bidirectional}]
`
