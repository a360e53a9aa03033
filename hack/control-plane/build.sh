#!/usr/bin/env bash
# Builds a real Kubernetes control plane from Go modules, once, into a cache folder.
#
#   build.sh [--all]   kube-apiserver, etcd, kubectl, then kube-controller-manager, kube-scheduler, kwok
#   build.sh --bare    kube-apiserver, etcd, kubectl only
#   build.sh --where   prints the folder without building anything
#
# The last line on stdout is the folder with the programs; everything else goes to stderr.
# Programs that are there already are not built again. Two runs at a time wait for each other.
#
#   OPERATOR_HOST_CACHE   where to build (default $XDG_CACHE_HOME/operator-host or ~/.cache/operator-host)
#   KUBEBUILDER_ASSETS    a folder with ready-made kube-apiserver, etcd and kubectl to use instead of building these
set -euo pipefail

kubernetes_version=v1.36.3

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf 'control-plane: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

mode=--all
[ $# -gt 1 ] && fail "one option at most: --all, --bare or --where"
[ $# -eq 1 ] && mode=$1
case $mode in --all | --bare | --where) ;; *) fail "unknown option $mode; known: --all, --bare, --where" ;; esac

assets=${KUBEBUILDER_ASSETS:-}
if [ -n "$assets" ]; then
    for program in kube-apiserver etcd kubectl; do
        [ -x "$assets/$program" ] || fail "KUBEBUILDER_ASSETS=$assets holds no executable $program"
    done
    assets=$(cd "$assets" && pwd)
fi

sources=(kubernetes/go.mod kubernetes/go.sum etcd/go.mod etcd/go.sum kwok/go.mod kwok/go.sum build.sh)
hash=$( (cd "$here" && sha256sum "${sources[@]}"; printf '%s\n' "$assets") | sha256sum | cut -c1-12)
cache=${OPERATOR_HOST_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME or OPERATOR_HOST_CACHE must be set}/.cache}/operator-host}/control-plane
root=$cache/$kubernetes_version-$hash
bin=$root/bin

if [ "$mode" = --where ]; then
    echo "$bin"
    exit 0
fi

complete() {
    local program
    for program in kube-apiserver etcd kubectl; do [ -x "$bin/$program" ] || return 1; done
    [ "$mode" = --bare ] && return 0
    for program in kube-controller-manager kube-scheduler kwok; do [ -x "$bin/$program" ] || return 1; done
    [ -s "$root/stages.yaml" ]
}

# place PROGRAM MODULE PACKAGE [LDFLAGS]: builds one program under a temporary name and moves it into place.
place() {
    local program=$1 module=$2 package=$3 ldflags=${4:-} started
    [ -x "$bin/$program" ] && return 0
    command -v go >/dev/null || fail "go is needed to build $program: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS"
    say "building $program (minutes when it is the first time)"
    started=$SECONDS
    (cd "$here/$module" && CGO_ENABLED=0 nice -n 10 go build -trimpath -ldflags "-s -w $ldflags" \
        -o "$bin/.$program.$$" "$package") >&2 || fail "$program did not build"
    mv -f "$bin/.$program.$$" "$bin/$program"
    say "built $program in $((SECONDS - started)) s"
}

# stages: kwok's rules that let fake nodes and pods become ready, as one file beside the programs.
stages() {
    [ -s "$root/stages.yaml" ] && return 0
    local folder file
    folder=$(cd "$here/kwok" && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok) || fail "kwok's module is not there"
    for file in "$folder"/kustomize/stage/node/fast/*.yaml "$folder"/kustomize/stage/pod/fast/*.yaml; do
        [ "$(basename "$file")" = kustomization.yaml ] && continue
        echo ---
        cat "$file"
    done >"$root/.stages.$$"
    mv -f "$root/.stages.$$" "$root/stages.yaml"
}

if ! complete; then
    mkdir -p "$bin"
    exec 9>"$root/.lock"
    if ! flock -n 9; then
        say "another run builds into $root; waiting for it"
        flock 9
    fi
    trap 'rm -f "$bin"/.*."$$" "$root"/.*."$$"' EXIT

    version=k8s.io/component-base/version
    client=k8s.io/client-go/pkg/version
    minor=${kubernetes_version#v1.}
    minor=${minor%%.*}
    stamp="-X $version.gitVersion=$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=$minor"
    stamp="$stamp -X $client.gitVersion=$kubernetes_version"

    if [ -n "$assets" ]; then
        for program in kube-apiserver etcd kubectl; do ln -sfn "$assets/$program" "$bin/$program"; done
        say "using kube-apiserver, etcd and kubectl of KUBEBUILDER_ASSETS"
    else
        place kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver "$stamp"
        place etcd etcd go.etcd.io/etcd/server/v3
        place kubectl kubernetes k8s.io/kubernetes/cmd/kubectl "$stamp"
    fi
    if [ "$mode" = --all ]; then
        place kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager "$stamp"
        place kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler "$stamp"
        place kwok kwok sigs.k8s.io/kwok/cmd/kwok
        stages
    fi
    say "ready after $SECONDS s"
fi

echo "$bin"
