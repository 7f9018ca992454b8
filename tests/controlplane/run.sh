#!/usr/bin/env bash
# Runs etcd, kube-apiserver and kube-controller-manager on loopback until standard input closes.
#
#   run.sh BIN DIR PORT
#
# BIN holds the binaries; DIR holds the certificates, keys and admin.kubeconfig that the caller made, takes data
# and logs, and is removed at the end; the API server listens on PORT. The caller keeps the write end of our standard
# input: however it ends, kill -9 included, the pipe closes and the servers end with it. It writes one line when the API
# server is ready.
set -euo pipefail

bin=$1 dir=$2 port=$3
cd "$dir"
pids=()

finish() {
  trap - EXIT INT TERM
  kill -9 "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null
  cd /
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM

start() {
  "$bin/$1" "${@:2}" >"$1.log" 2>&1 </dev/null &
  pids+=($!)
}

# Unix sockets need no free port; etcd wants the form of a port in their names all the same. Nothing here outlives a
# test run, so nothing has to reach the disk.
start etcd --data-dir=etcd --unsafe-no-fsync --log-level=warn \
  --listen-client-urls=unix://client:0 --advertise-client-urls=unix://client:0 \
  --listen-peer-urls=unix://peer:0 --initial-advertise-peer-urls=unix://peer:0 \
  --initial-cluster=default=unix://peer:0

# Service accounts are made by a controller that is not run here, so their admission plugin would refuse every pod.
# History is forgotten after half a minute instead of five, so that a test can see it. The server has no lease of its
# own: beside those of a rehearsal, which renew theirs twenty times as often, it would pass for a leader that is gone.
start kube-apiserver --etcd-servers=unix://client:0 --etcd-compaction-interval=30s \
  --feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false \
  --bind-address=127.0.0.1 --secure-port="$port" --advertise-address=127.0.0.1 --endpoint-reconciler-type=none \
  --tls-cert-file=serving.crt --tls-private-key-file=serving.key --client-ca-file=ca.crt \
  --service-account-issuer=https://windrow.test --service-account-key-file=accounts.pub \
  --service-account-signing-key-file=accounts.key --service-cluster-ip-range=10.0.0.0/24 \
  --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount --allow-privileged \
  --enable-priority-and-fairness=false --profiling=false

# The controllers give up when the API server is not ready within ten seconds, so they start when told to.
while status=0; read -r -t 1 _ || status=$?; ((status == 0 || status > 128)); do
  if ((status == 0)); then
    start kube-controller-manager --kubeconfig=admin.kubeconfig --authentication-skip-lookup --secure-port=0 \
      --leader-elect=false --profiling=false \
      --controllers=garbage-collector-controller,namespace-controller,persistentvolume-protection-controller
  fi
  for pid in "${pids[@]}"; do
    kill -0 "$pid" 2>/dev/null || { tail -n 10 ./*.log >&2; exit 1; }
  done
done
