#!/usr/bin/env bash
# Removes what the scripts here made, rollcall and what it left included. The cluster stays: demo/kind/cluster.sh delete.
source "$(dirname "$0")/lib.sh"
need kubectl kubectl-rollcall

step "removing the pods and static pods of the demo, and what an interruption that was broken off left on its node"
for node in $(kubectl get nodes -l '!node-role.kubernetes.io/control-plane' -o name | sed 's|^node/||'); do
  path=$(static_pod_path "$node")
  on_node "$node" rm -f "$path/rollcall-demo-hog.yaml" "$path/rollcall-demo-walk.yaml"
done
for node in $(kubectl get nodes -l "$touched" -o name | sed 's|^node/||'); do
  restore "$node"
done
kubectl delete namespace "$shop" "$race" rollcall-demo-hidden --ignore-not-found
look "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints[*].key: other taints and cordons are as they were"

step "uninstalling rollcall; with its namespace and its definition go the Lease and the records"
kubectl delete -f "$root/deploy/manifests/install.yaml" --ignore-not-found --wait | sed 's/^/     /'
if kubectl get crd nodereadinessrules.readiness.node.x-k8s.io >/dev/null 2>&1; then
  kubectl delete -f "$root/deploy/readiness-rule.yaml" --ignore-not-found
fi
pods_gone() { [ -z "$(kubectl get pods -A -l app.kubernetes.io/name=rollcall -o name)" ]; }
wait_for 90 "the end of rollcall's pods" pods_gone
look "kubectl get pods -A -l app.kubernetes.io/name=rollcall: nothing; kubectl get podlosses: a kind that the server does not know"

step "and what it left on pods and nodes"
kubectl rollcall cleanup --yes | sed 's/^/     /'
look "kubectl get nodes -o yaml | grep rollcall: nothing"
