#!/bin/sh
# What the benchmark compares rollcall-agent with: the published way to hold a node for its static pods, as a script of one
# kubectl process per file and poll.
# Usage: wait-for-mirrors.sh NODE MANIFESTS CONDITION
set -eu
node=$1 manifests=$2 condition=$3
for file in "$manifests"/*; do
  id=$(kubectl patch --local -f "$file" -p '{}' -o 'jsonpath={.metadata.namespace} {.metadata.name}')
  namespace=${id%% *} name=${id##* }
  until kubectl get pod -n "$namespace" "$name-$node" >/dev/null 2>&1; do
    sleep 2
  done
done
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
kubectl apply --server-side --force-conflicts --subresource=status --field-manager=wait-for-mirrors -f - <<END >/dev/null
apiVersion: v1
kind: Node
metadata:
  name: $node
status:
  conditions:
  - type: $condition
    status: "True"
    reason: AllMirrored
    message: all static pods are mirrored
    lastHeartbeatTime: $now
    lastTransitionTime: $now
END
