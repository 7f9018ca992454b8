#!/usr/bin/env bash
# Prints the folder that holds etcd, kube-apiserver, kube-controller-manager and kubectl, building them once if need be.
#
#   KUBEBUILDER_ASSETS         a folder that holds the first three: used as it is
#   WINDROW_CONTROLPLANE_DIR   where builds are kept; default ${XDG_CACHE_HOME:-~/.cache}/windrow/controlplane
#
# A build takes about 8 minutes on two cores and leaves 230 MB. It never writes into the checkout.
# Exit status 3: there is neither a Go toolchain nor an earlier build.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=(etcd kube-apiserver kube-controller-manager)

say() { printf 'controlplane: %s\n' "$*" >&2; }

holds_all() {
  local name
  for name in "${binaries[@]}"; do [[ -x $1/$name ]] || return 1; done
}

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  if holds_all "$KUBEBUILDER_ASSETS"; then
    printf '%s\n' "$KUBEBUILDER_ASSETS"
    exit 0
  fi
  say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS does not hold all of ${binaries[*]}: using a build of our own"
fi

root=${WINDROW_CONTROLPLANE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/windrow/controlplane}
key=$(cat "$here/kubernetes/go.sum" "$here/etcd/go.sum" | sha256sum | cut -c1-16)
dir=$root/$key
if [[ -d $dir ]]; then
  printf '%s\n' "$dir"
  exit 0
fi
if ! command -v go >/dev/null; then
  say "no Go toolchain, and nothing built in $dir"
  exit 3
fi

# Runs with descriptor 9 closed, so that a compiler that outlives us does not keep the lock.
build() {
  local partial=$1 version major minor about=k8s.io/component-base/version
  version=$(cd "$here/kubernetes" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${version#v}"
  say "building etcd and Kubernetes $version into $dir (about 8 minutes, once)"
  export CGO_ENABLED=0
  local stamp="-X $about.gitVersion=$version -X $about.gitMajor=$major -X $about.gitMinor=$minor"
  (cd "$here/etcd" && nice -n 10 go build -trimpath -ldflags '-s -w' -o "$partial/etcd" go.etcd.io/etcd/server/v3)
  (cd "$here/kubernetes" && nice -n 10 go build -trimpath -ldflags "-s -w $stamp" -o "$partial/" tool)
}

mkdir -p "$root"
exec 9>"$root/$key.lock"
flock 9
if [[ ! -d $dir ]]; then
  partial=$(mktemp -d "$root/partial.XXXXXX")
  trap 'rm -rf "$partial"' EXIT
  build "$partial" >&2 9>&-
  mv -T "$partial" "$dir"
fi
printf '%s\n' "$dir"
