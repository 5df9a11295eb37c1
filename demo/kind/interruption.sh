#!/usr/bin/env bash
# Plays a spot interruption on a node: what will be lost is marked before the drain, and on record after it.
#
#   demo/kind/interruption.sh [NODE]   default: the first worker
source "$(dirname "$0")/lib.sh"
need kubectl kubectl-rollcall
node=${1:-$(worker 1)}

marked() { [ -n "$(kubectl -n "$shop" get pod "$1" -o jsonpath='{.metadata.annotations.rollcall\.dev/at-risk}')" ]; }
busy() { [ -n "$(kubectl get node "$node" -o jsonpath='{.spec.unschedulable}{.spec.taints[?(@.key=="spot-interruption")].key}')" ]; }
unmarked() { ! marked "$1"; }
records() { kubectl -n "$shop" get podlosses -o jsonpath='{.items[*].status.state}' | { grep -ow Closed || true; } | wc -l; }
closed() { [ "$(records)" -ge $((before + 2)) ]; }
gone() { ! kubectl -n "$shop" get pod "$1"; }

# pod NAME: one that nothing will make again, on the node.
pod() {
  kubectl apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: $shop, labels: {demo: rollcall}}
spec:
  nodeSelector: {kubernetes.io/hostname: $node}
  terminationGracePeriodSeconds: 1
  containers: [{name: pause, image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: 10m}}}]
YAML
}

step "two bare pods and a Deployment in namespace $shop, on $node"
make_namespace "$shop"
# What a run that was broken off left on the node is undone; what others did to it is not ours.
if [ -n "$(kubectl get nodes -l "$touched" -o name --field-selector "metadata.name=$node")" ]; then
  restore "$node"
fi
if busy; then fail "$node is cordoned or interrupted, and not by this script: name another node"; fi
kubectl -n "$shop" delete pod notebook load-test --ignore-not-found --wait >/dev/null
before=$(records)
pod notebook
pod load-test
kubectl -n "$shop" create deployment web --image registry.k8s.io/pause:3.10 --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl -n "$shop" wait pod notebook load-test --for=condition=Ready --timeout=2m >/dev/null
look "before anything happens, who would be lost if its node went now?"
show kubectl rollcall check "$node" -n "$shop" || true

step "the cloud takes $node back: taint spot-interruption"
kubectl label node "$node" "$touched=" --overwrite >/dev/null
kubectl taint node "$node" spot-interruption=true:NoSchedule --overwrite >/dev/null
for name in notebook load-test; do wait_for 30 "the mark of $name" marked "$name"; done
look "the bare pods bear the annotation rollcall.dev/at-risk, the Deployment's does not"
show kubectl -n "$shop" get pods -o 'custom-columns=POD:.metadata.name,NODE:.spec.nodeName,AT RISK:.metadata.annotations.rollcall\.dev/at-risk'

step "drain with force, as a termination handler does"
kubectl drain "$node" --force --ignore-daemonsets --delete-emptydir-data --disable-eviction --pod-selector=demo=rollcall --timeout=1m >/dev/null
for name in notebook load-test; do wait_for 60 "the end of $name" gone "$name"; done
wait_for 60 "the records" closed
look "what was lost is on record, with what is needed to have it back"
show kubectl rollcall losses -n "$shop" --since 1h

step "the node is healthy again, and the pods come back from their records"
restore "$node"
kubectl rollcall losses -n "$shop" --since 5m -o yaml | kubectl apply -f - | sed 's/^/     /'
wait_for 30 "an unmarked notebook" unmarked notebook
look "kubectl -n $shop get pods"
