#!/usr/bin/env bash
# Builds the Go operator that the host is measured against, into the cache.
#
#   build.sh    the last line on stdout is the program; everything else goes to stderr
#
#   OPERATOR_HOST_CACHE   where to build (default $XDG_CACHE_HOME/operator-host or ~/.cache/operator-host)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${OPERATOR_HOST_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME or OPERATOR_HOST_CACHE must be set}/.cache}/operator-host}
program=$cache/bench/webapp-operator

command -v go >/dev/null || { echo "bench: go is needed: install Go 1.26 or newer" >&2; exit 1; }
# Go's own cache makes this a second when nothing has changed.
(cd "$here" && CGO_ENABLED=0 nice -n 10 go build -trimpath -ldflags "-s -w" -o "$program" ./cmd) >&2
echo "$program"
