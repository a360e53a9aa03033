#!/usr/bin/env bash
# Builds every fixture into a folder: asker.wasm, keeper.wasm and probe.wasm (core modules), probe-wasi.wasm and explorer.wasm (components
# that import WASI) and variants of a module as variant-NAME.wasm. Cargo decides what is stale, so calling it again costs a second.
#
#   guest-fixtures/build.sh OUTDIR
set -euo pipefail

out=$(mkdir -p "${1:?usage: guest-fixtures/build.sh OUTDIR}" && cd "$1" && pwd)
cd "$(dirname "$0")"
# A target folder of its own: two builds in one folder wait for each other.
target=${CARGO_TARGET_DIR:-$PWD/../target}/fixtures
export CARGO_TARGET_DIR=$target

cargo build --quiet --target wasm32-unknown-unknown -p asker -p keeper -p probe
cargo build --quiet --target wasm32-unknown-unknown -p variants --examples
cargo build --quiet --target wasm32-wasip2 -p explorer -p probe

# Under another name first: a test that runs at the same time must not read half a file.
place() {
    cmp -s "$1" "$out/$2" && return
    cp "$1" "$out/.$2.$$"
    mv "$out/.$2.$$" "$out/$2"
}
place "$target/wasm32-unknown-unknown/debug/probe.wasm" probe.wasm
place "$target/wasm32-unknown-unknown/debug/asker.wasm" asker.wasm
place "$target/wasm32-unknown-unknown/debug/keeper.wasm" keeper.wasm
place "$target/wasm32-wasip2/debug/probe.wasm" probe-wasi.wasm
place "$target/wasm32-wasip2/debug/explorer.wasm" explorer.wasm
for source in variants/examples/*.rs; do
    name=$(basename "$source" .rs)
    place "$target/wasm32-unknown-unknown/debug/examples/$name.wasm" "variant-${name//_/-}.wasm"
done
