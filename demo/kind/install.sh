#!/usr/bin/env bash
# Installs rollcall: the plain manifests, and the readiness rule where the Node Readiness Controller's CRD is.
#
#   WAIT=no demo/kind/install.sh   does not wait until the pods are ready
source "$(dirname "$0")/lib.sh"
need kubectl

step "installing rollcall from deploy/manifests/install.yaml"
kubectl apply --server-side --force-conflicts -f "$root/deploy/manifests/install.yaml" | sed 's/^/     /'
wait_for 30 "PodLoss to be served" kubectl get podlosses -A
if [ "${WAIT:-yes}" = yes ]; then
  kubectl -n rollcall-system rollout status deployment/rollcall-controller --timeout=3m
  kubectl -n rollcall-system rollout status daemonset/rollcall-agent --timeout=3m
fi
look "kubectl -n rollcall-system get pods -o wide: the agent runs on the node that waits, too"

if kubectl get crd nodereadinessrules.readiness.node.x-k8s.io >/dev/null 2>&1; then
  step "the Node Readiness Controller's CRD is here: applying the rule that releases nodes"
  kubectl apply -f "$root/deploy/readiness-rule.yaml"
  look "kubectl get nodereadinessrules: static-pods-mirrored"
else
  step "no Node Readiness Controller: a node that waits stays so, with its condition True"
  look "controller.releaseTaint of the chart lets rollcall take the taint away"
fi
