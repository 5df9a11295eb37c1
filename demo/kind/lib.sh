# shellcheck shell=bash
# What the scripts here share. Each of them is run by itself, works on the cluster of the kubeconfig, and may be run again.
#
# Environment:
#   ON_NODE  how a command is run on a node, as "$ON_NODE NODE COMMAND..."; default: docker exec -i, which reaches kind's nodes
#   STATIC_POD_PATH  the kubelets' staticPodPath, where their /configz does not say it

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root
readonly shop=rollcall-demo-shop race=rollcall-demo-race
readonly taint=readiness.k8s.io/StaticPodsMirrored
# The label of the node that interruption.sh taints and cordons, as long as it is so.
readonly touched=rollcall-demo/interrupted
export shop race taint touched root

# step says what happens next; look says what to look at.
step() { printf '\n== %s\n' "$*"; }
look() { printf '   look: %s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || fail "$tool is not in the PATH: install it (docs/install.md)"
  done
}

# show prints a command and runs it.
show() {
  printf '   $ %s\n' "$*"
  "$@" | sed 's/^/     /'
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local patience=$1 what=$2 end
  shift 2
  end=$((SECONDS + patience))
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "waited ${patience}s for $what"
    sleep 0.2
  done
}

# worker N: the name of the N-th node that is no control plane.
worker() {
  local name
  name=$(kubectl get nodes -l '!node-role.kubernetes.io/control-plane' -o name | sort | sed -n "s|^node/||;${1}p")
  [ -n "$name" ] || fail "the cluster has no worker number $1: demo/kind/cluster.sh create makes one with three"
  echo "$name"
}

# restore NODE: takes back what interruption.sh did to the node. The label goes last, so that it can be begun again.
restore() {
  kubectl taint node "$1" spot-interruption- >/dev/null 2>&1 || true
  kubectl uncordon "$1" >/dev/null
  kubectl label node "$1" "$touched-" >/dev/null
}

on_node() {
  local node=$1
  shift
  if [ -n "${ON_NODE:-}" ]; then
    "$ON_NODE" "$node" "$@"
  else
    docker exec -i "$node" "$@"
  fi
}

# static_pod_path NODE: the directory from which the node's kubelet takes static pods, as the kubelet says.
static_pod_path() {
  local path
  path=$(kubectl get --raw "/api/v1/nodes/$1/proxy/configz" 2>/dev/null | sed -n 's/.*"staticPodPath":"\([^"]*\)".*/\1/p')
  path=${path:-${STATIC_POD_PATH:-}}
  [ -n "$path" ] || fail "the kubelet of $1 names no staticPodPath: set STATIC_POD_PATH"
  echo "${path%/}"
}

# make_namespace NAME: with its service account, without which no pod can be made.
make_namespace() {
  kubectl create namespace "$1" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  wait_for 30 "the service account of $1" kubectl -n "$1" get serviceaccount default
}
