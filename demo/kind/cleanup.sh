#!/usr/bin/env bash
# Removes what the scripts here made, rollcall and what it left included. The cluster stays: demo/kind/cluster.sh delete.
source "$(dirname "$0")/lib.sh"
need kubectl kubectl-rollcall

step "removing the pods, static pods and taints of the demo"
for node in $(kubectl get nodes -l '!node-role.kubernetes.io/control-plane' -o name | sed 's|^node/||'); do
  path=$(static_pod_path "$node")
  on_node "$node" rm -f "$path/rollcall-demo-hog.yaml" "$path/rollcall-demo-walk.yaml"
  kubectl taint node "$node" spot-interruption- >/dev/null 2>&1 || true
  kubectl uncordon "$node" >/dev/null
done
kubectl delete namespace "$shop" "$race" rollcall-demo-hidden --ignore-not-found

step "uninstalling rollcall; with its namespace and its definition go the Lease and the records"
kubectl delete -f "$root/deploy/manifests/install.yaml" --ignore-not-found --wait | sed 's/^/     /'
if kubectl get crd nodereadinessrules.readiness.node.x-k8s.io >/dev/null 2>&1; then
  kubectl delete -f "$root/deploy/readiness-rule.yaml" --ignore-not-found
fi
pods_gone() { [ -z "$(kubectl get pods -A -l app.kubernetes.io/name=rollcall -o name)" ]; }
wait_for 90 "the end of rollcall's pods" pods_gone

step "and what it left on pods and nodes"
kubectl rollcall cleanup --yes | sed 's/^/     /'
look "kubectl get nodes -o yaml | grep rollcall: nothing"
