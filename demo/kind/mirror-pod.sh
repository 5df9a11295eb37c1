#!/usr/bin/env bash
# Walks through the life of a mirror pod on one node.
#
#   demo/kind/mirror-pod.sh [NODE]   default: the third worker
source "$(dirname "$0")/lib.sh"
need kubectl kubectl-rollcall
node=${1:-$(worker 3)}
readonly pod="rollcall-demo-walk-$node"

there() { kubectl -n kube-system get pod "$pod"; }
gone() { ! there; }
uid() { kubectl -n kube-system get pod "$pod" -o jsonpath='{.metadata.uid}'; }
container() { kubectl -n kube-system get pod "$pod" -o jsonpath='{.status.containerStatuses[0].containerID}'; }

step "where does the kubelet of $node take static pods from? Its /configz says"
path=$(static_pod_path "$node")
look "on $node the files in $path"

step "a manifest in that directory becomes a pod, without the API server"
on_node "$node" tee "$path/rollcall-demo-walk.yaml" >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: rollcall-demo-walk, namespace: kube-system}
spec:
  hostNetwork: true
  containers: [{name: pause, image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: 10m}}}]
YAML
wait_for 60 "the mirror pod" there
running() { [ -n "$(container)" ]; }
wait_for 60 "the container" running
look "the mirror pod, owned by the Node, with the annotations by which rollcall knows it"
show kubectl -n kube-system get pod "$pod" -o 'custom-columns=POD:.metadata.name,OWNER:.metadata.ownerReferences[0].kind,MIRROR:.metadata.annotations.kubernetes\.io/config\.mirror'
show kubectl rollcall mirrors "$node" || true

step "deleting the mirror pod: it returns, and the container has not noticed"
before=$(uid) ran=$(container)
kubectl -n kube-system delete pod "$pod" --grace-period=0 --force >/dev/null 2>&1
returned() { [ -n "$(uid)" ] && [ "$(uid)" != "$before" ]; }
wait_for 150 "another mirror pod" returned
wait_for 60 "the container" running
[ "$(container)" = "$ran" ] || fail "the container is another: $ran, then $(container)"
look "another UID, the same container: $ran"

step "patching the mirror pod: in vain, the kubelet reads the file"
kubectl -n kube-system patch pod "$pod" --type=merge -p '{"metadata":{"labels":{"patched":"yes"}}}' | sed 's/^/     /'
kubectl -n kube-system set image "pod/$pod" pause=registry.k8s.io/pause:3.9 | sed 's/^/     /' || true
sleep 5
[ "$(container)" = "$ran" ] || fail "the container was replaced"
look "the API server took it, the container is still $ran"

step "removing the manifest: that ends it"
on_node "$node" rm -f "$path/rollcall-demo-walk.yaml"
wait_for 90 "the end of the mirror pod" gone
look "kubectl -n kube-system get pod $pod: not found"
