#!/usr/bin/env bash
# The only script here that needs kind: it makes the cluster, with the images, and removes it.
#
#   demo/kind/cluster.sh create   a control plane and three workers; the third registers with the readiness taint and has a
#                                 static pod; rollcall's images are built and loaded
#   demo/kind/cluster.sh load     builds and loads the images again
#   demo/kind/cluster.sh delete
source "$(dirname "$0")/lib.sh"

readonly name=rollcall
readonly version=0.1.0 # the tag that deploy/manifests names

load() {
  step "building the images from this tree and loading them"
  VERSION=$version "$root/deploy/image/build.sh"
  kind load docker-image --name "$name" "rollcall/rollcall-controller:$version" "rollcall/rollcall-agent:$version"
  look "docker exec $name-worker crictl images | grep rollcall"
}

create() {
  if kind get clusters 2>/dev/null | grep -qx "$name"; then
    step "the cluster $name is there already"
  else
    step "creating the cluster $name: a control plane and three workers"
    (cd "$here" && kind create cluster --name "$name" --config kind.yaml --wait 2m)
  fi
  kubectl config use-context "kind-$name" >/dev/null
  look "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints[*].key: the third worker waits"
  load
  step "next: demo/kind/install.sh"
}

need kind docker kubectl
case "${1:-}" in
create) create ;;
load) load ;;
delete) kind delete cluster --name "$name" ;;
*) fail "usage: $0 create|load|delete" ;;
esac
