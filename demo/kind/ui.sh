#!/usr/bin/env bash
# Opens the live view; without a terminal it prints what the controller knows now, once. Arguments go to kubectl rollcall.
source "$(dirname "$0")/lib.sh"
need kubectl kubectl-rollcall

if [ -t 0 ] && [ -t 1 ]; then
  look "the tabs are Going, Coming, Queue, Log and Standing; ? shows the keys, q leaves"
  exec kubectl rollcall "$@"
fi
step "no terminal here: what the controller knows now"
show kubectl rollcall stream --once "$@"
