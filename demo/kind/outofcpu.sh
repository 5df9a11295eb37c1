#!/usr/bin/env bash
# Plays the race of kubernetes/kubernetes#115325 on one node, slowed down: a static pod whose mirror pod cannot be made, because its
# namespace is missing, uses most of the CPU. The scheduler does not see it, over-fills the node, and the kubelet fails the pods
# with OutOfcpu. With the mirror on the books it stops.
#
#   demo/kind/outofcpu.sh [NODE]   default: the second worker
source "$(dirname "$0")/lib.sh"
need kubectl kubectl-rollcall
node=${1:-$(worker 2)}
readonly hidden=rollcall-demo-hidden

failed() { kubectl -n "$race" get pods -o jsonpath='{range .items[*]}{.status.reason}{"\n"}{end}' | grep -c '^OutOfcpu$' || true; }
some_failed() { [ "$(failed)" -gt 0 ]; }
waiting() { [ "$(kubectl -n "$race" get pods --field-selector=status.phase=Pending -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="PodScheduled")].reason}{"\n"}{end}' | grep -c '^Unschedulable$')" -ge 1 ]; }
mirrored() { kubectl -n "$hidden" get pod "hog-$node"; }

path=$(static_pod_path "$node")
cores=$(kubectl get node "$node" -o jsonpath='{.status.allocatable.cpu}')
case $cores in *m) millis=${cores%m} ;; *) millis=$((cores * 1000)) ;; esac
hog=$((millis * 6 / 10))
each=$((millis / 4))

step "a static pod on $node that asks for ${hog}m of ${millis}m CPU, in a namespace that does not exist: $path/rollcall-demo-hog.yaml"
kubectl delete namespace "$race" "$hidden" --ignore-not-found --wait >/dev/null
on_node "$node" tee "$path/rollcall-demo-hog.yaml" >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: hog, namespace: $hidden}
spec:
  hostNetwork: true
  containers: [{name: pause, image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: ${hog}m}}}]
YAML
look "the scheduler believes that the node is empty; kubectl rollcall mirrors $node says otherwise (exit status 3: not mirrored)"
waits() { { kubectl rollcall mirrors "$node" || true; } | grep "$hidden/hog"; }
wait_for 60 "rollcall to know of the static pod" waits
show kubectl rollcall mirrors "$node" || true

step "a Deployment of three pods of ${each}m each, for this node"
make_namespace "$race"
kubectl apply -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: worker, namespace: $race}
spec:
  replicas: 3
  selector: {matchLabels: {app: worker}}
  template:
    metadata: {labels: {app: worker}}
    spec:
      nodeSelector: {kubernetes.io/hostname: $node}
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers: [{name: pause, image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: ${each}m}}}]
YAML
wait_for 60 "a pod that the kubelet refuses" some_failed
look "pods bound by the scheduler and failed by the kubelet; the ReplicaSet makes more of them"
show kubectl -n "$race" get pods -o 'custom-columns=POD:.metadata.name,PHASE:.status.phase,REASON:.status.reason'

step "the namespace is made: the kubelet puts the mirror pod on the books, at its next try (up to 90 s)"
kubectl -n "$race" scale deployment worker --replicas=0 >/dev/null
kubectl create namespace "$hidden" >/dev/null
wait_for 150 "the mirror pod" mirrored
look "all mirrored: now the scheduler counts the static pod"
show kubectl rollcall mirrors "$node"
kubectl -n "$race" delete pods --all --grace-period=0 --force >/dev/null 2>&1

step "the same Deployment once more: what does not fit is not bound"
kubectl -n "$race" scale deployment worker --replicas=3 >/dev/null
wait_for 60 "pods that wait" waiting
[ "$(failed)" -eq 0 ] || fail "$(failed) pods failed"
look "a node that is held by the readiness taint until its static pods are mirrored never has the failures above"
show kubectl -n "$race" get pods -o 'custom-columns=POD:.metadata.name,PHASE:.status.phase,REASON:.status.reason'

step "removing it"
on_node "$node" rm -f "$path/rollcall-demo-hog.yaml"
kubectl delete namespace "$race" "$hidden" --ignore-not-found --wait=false | sed 's/^/     /'
look "kubectl rollcall mirrors $node: no $hidden/hog any more"
