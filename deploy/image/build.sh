#!/usr/bin/env bash
# Builds rollcall's images from this tree and prints their sizes. Nothing is pushed.
#
#   deploy/image/build.sh [--host-go]
#
# --host-go  compile with this machine's Go, its module cache and its build cache, instead of in a golang image: for machines
#            that cannot pull one. Needs buildah. Sets no -trimpath, to find what the build cache has.
#
# Environment: BUILDER (docker, podman or buildah; the first that is installed), REPOSITORY (rollcall), VERSION (of the
# nearest tag, or dev), GO_IMAGE (docker.io/library/golang:1.26).
set -euo pipefail
cd "$(dirname "$0")/../.."

host_go=false
case "${1:-}" in
"") ;;
--host-go) host_go=true ;;
*)
  echo "error: unknown argument $1: it takes --host-go or nothing" >&2
  exit 2
  ;;
esac

first_of() {
  local tool
  for tool in "$@"; do
    if command -v "$tool" >/dev/null; then
      echo "$tool"
      return
    fi
  done
  echo "error: none of $* is installed: install one, or name another with BUILDER" >&2
  return 1
}

builder=${BUILDER:-$(if $host_go; then first_of buildah; else first_of docker podman buildah; fi)}
repository=${REPOSITORY:-rollcall}
version=${VERSION:-$(git describe --tags --abbrev=0 2>/dev/null || echo dev)}
revision=$(git rev-parse HEAD)
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then revision+=-dirty; fi

common=(build --file deploy/image/Dockerfile --build-arg "VERSION=$version" --build-arg "REVISION=$revision")
if [ "$builder" = buildah ]; then
  common+=(--layers --ignorefile deploy/image/Dockerfile.dockerignore)
fi

# buildah_run works as well where no container can be started: storage without overlays, steps in a chroot.
buildah_run() { BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs buildah "$@"; }

# The stand-in for the golang image is a shell and its libraries; Go and its caches are mounted where they are.
stand_in() {
  local container root file
  container=$(buildah_run from scratch)
  root=$(buildah_run mount "$container")
  mkdir -p "$root/tmp" "$root/bin" "$root/root"
  chmod 1777 "$root/tmp"
  for file in /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
  done
  buildah_run config --env "PATH=$(go env GOROOT)/bin:/bin" --env HOME=/root --env "GOROOT=$(go env GOROOT)" \
    --env "GOMODCACHE=$(go env GOMODCACHE)" --env "GOCACHE=$(go env GOCACHE)" "$container"
  buildah_run commit --quiet --rm "$container" rollcall-go >/dev/null
}

if $host_go; then
  stand_in
  common+=(--build-arg GO_IMAGE=localhost/rollcall-go --build-arg GOFLAGS=-buildvcs=false
    --volume "$(go env GOROOT):$(go env GOROOT):ro" --volume "$(go env GOMODCACHE):$(go env GOMODCACHE)" --volume "$(go env GOCACHE):$(go env GOCACHE)")
elif [ -n "${GO_IMAGE:-}" ]; then
  common+=(--build-arg "GO_IMAGE=$GO_IMAGE")
fi

build() {
  if [ "$builder" = buildah ]; then buildah_run "$@"; else "$builder" "$@"; fi
}

for target in controller agent; do
  build "${common[@]}" --target "$target" --tag "$repository/rollcall-$target:$version" .
done
for target in controller agent; do
  case "$builder" in
  buildah) size=$(buildah_run images --json "$repository/rollcall-$target:$version" | grep -m1 '"size"' | cut -d'"' -f4) ;;
  *) size=$("$builder" image inspect --format '{{.Size}} bytes' "$repository/rollcall-$target:$version") ;;
  esac
  echo "$repository/rollcall-$target:$version ($revision): $size"
done
