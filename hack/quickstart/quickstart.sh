#!/usr/bin/env bash
# Installs railwright in a test cluster, gives nodes fake devices and shows an injected pod. Needs kubectl and Helm 3.
set -euo pipefail

FOLDER="$(cd "$(dirname "$0")" && pwd)"
readonly FOLDER NAMESPACE=railwright-quickstart SYSTEM=railwright-system
readonly ROOT="$FOLDER/../.." DEVICES="gpu rail0 rail1" DOMAIN=quickstart.railwright.io
image=railwright:quickstart nodes='' kind='' build=true delete=false check=''

usage() {
  cat <<'EOF'
usage: hack/quickstart/quickstart.sh [options]

Installs railwright in the cluster of your current kubeconfig context, which must be a test cluster.

  --image REF       image of railwright (default: railwright:quickstart, built by docker or podman)
  --skip-image      neither build nor load the image: the nodes have it or can pull it
  --kind NAME       load the image into the kind cluster NAME
  --nodes A,B       nodes that get fake devices (default: all nodes)
  --check COMMAND   command that checks the installation (default: railwright check, if it is installed, else helm test)
  --delete          remove everything that this script has created
  --help            show this help

KUBECONFIG, KUBECTL and HELM choose the cluster and the programs.
EOF
}

fail() { echo "quickstart: $*" >&2; exit 2; }
need() { [ -n "${2:-}" ] || fail "$1 needs a value; --help lists the options"; }
step() { printf '\n== %s\n' "$*"; }

while [ $# -gt 0 ]; do
  case "$1" in
    --image) need "$@"; image=$2; build=false; shift ;;
    --skip-image) build=false ;;
    --kind) need "$@"; kind=$2; shift ;;
    --nodes) need "$@"; nodes=$2; shift ;;
    --check) need "$@"; check=$2; shift ;;
    --delete) delete=true ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; fail "unknown option $1" ;;
  esac
  shift
done

readonly kubectl="${KUBECTL:-kubectl}" helm="${HELM:-helm}"
command -v "$kubectl" > /dev/null || fail "kubectl is missing: https://kubernetes.io/docs/tasks/tools/"
command -v "$helm" > /dev/null || fail "Helm 3 is missing: https://helm.sh/docs/intro/install/"
"$kubectl" get --raw /readyz > /dev/null || fail "no API server answers: choose a cluster with kubectl config use-context NAME"
[ -n "$nodes" ] || nodes=$("$kubectl" get nodes -o 'jsonpath={.items[*].metadata.name}')
nodes=${nodes//,/ }
[ -n "$nodes" ] || fail "the cluster has no node"

case "${image##*/}" in  # without the registry, which may have a port
  *@sha256:*) image_values=(--set "image.repository=${image%@*}" --set-string "image.tag=@${image#*@}") ;;
  *:*) image_values=(--set "image.repository=${image%:*}" --set-string "image.tag=${image##*:}") ;;
  *) fail "--image $image has no tag: write NAME:TAG or NAME@sha256:DIGEST" ;;
esac

# Prints the JSON Patch operations for the devices: each name escaped as in a JSON Pointer.
device_patch() {
  local operations='' device field
  for device in $DEVICES; do
    for field in capacity allocatable; do
      operations+="${operations:+,}{\"op\":\"$1\",\"path\":\"/status/$field/$DOMAIN~1$device\"${2:+,\"value\":\"$2\"}}"
    done
  done
  echo "[$operations]"
}

# An installation or policy that this script has not made stays as it is.
if "$helm" status railwright --namespace "$SYSTEM" > /dev/null 2>&1; then
  "$helm" get values railwright --namespace "$SYSTEM" | grep "$DOMAIN" > /dev/null \
    || fail "railwright is installed in this cluster, and not by this script: use another cluster"
elif "$kubectl" --namespace "$SYSTEM" get deployment railwright-webhook > /dev/null 2>&1; then
  fail "railwright is installed in this cluster without Helm: use another cluster"
fi

if $delete; then
  step "Removing the job, railwright and the fake devices"
  "$kubectl" delete namespace "$NAMESPACE" --ignore-not-found --wait=false
  if "$helm" status railwright --namespace "$SYSTEM" > /dev/null 2>&1; then
    "$helm" uninstall railwright --namespace "$SYSTEM"
  fi
  "$kubectl" delete namespace "$SYSTEM" --ignore-not-found --wait=false
  for node in $nodes; do
    if [ -n "$("$kubectl" get node "$node" -o "jsonpath={.status.capacity.quickstart\.railwright\.io/gpu}")" ]; then
      "$kubectl" patch node "$node" --subresource=status --type=json --patch "$(device_patch remove "")"
    fi
  done
  exit 0
fi

if $build; then
  step "Building the image $image"
  builder=$(command -v docker || command -v podman) || fail "docker or podman is missing: install one, or use --image REF"
  "$builder" build --tag "$image" "$ROOT"
fi
if [ -n "$kind" ]; then
  step "Loading the image into the kind cluster $kind"
  kind load docker-image "$image" --name "$kind"
fi

step "Giving fake devices to $nodes"
for node in $nodes; do
  "$kubectl" patch node "$node" --subresource=status --type=json --patch "$(device_patch add 8)"
done

step "Installing railwright with a policy of two rails"
"$helm" upgrade --install railwright "$ROOT/manifests/chart" --namespace "$SYSTEM" --create-namespace \
  --values "$FOLDER/values.yaml" --set-file policy.document="$FOLDER/policy.yaml" "${image_values[@]}"
"$kubectl" label namespace "$SYSTEM" --overwrite pod-security.kubernetes.io/enforce=restricted
for server in certs webhook; do
  "$kubectl" --namespace "$SYSTEM" rollout status "deployment/railwright-$server" --timeout=300s
done

step "Checking the installation"
run_check() {
  if [ -n "$check" ]; then $check
  elif command -v railwright > /dev/null; then railwright check --wait=120
  else "$helm" test railwright --namespace "$SYSTEM" --logs
  fi
}
run_check

step "Creating a job with one label"
"$kubectl" create namespace "$NAMESPACE" --dry-run=client --output=yaml | "$kubectl" apply --filename -
"$kubectl" --namespace "$NAMESPACE" delete job train --ignore-not-found
sed "s|IMAGE|$image|" "$FOLDER/job.yaml" | "$kubectl" apply --filename -
for attempt in $(seq 60); do
  pod=$("$kubectl" --namespace "$NAMESPACE" get pods --selector job-name=train -o 'jsonpath={.items[0].metadata.name}' 2> /dev/null) && break
  [ "$attempt" -lt 60 ] || fail "no pod of the job after 60 s: kubectl -n $NAMESPACE describe job train"
  sleep 1
done

step "What railwright added to pod $pod"
"$kubectl" --namespace "$NAMESPACE" get pod "$pod" \
  -o 'jsonpath={range .spec.containers[0].env[*]}{.name}={.value}{"\n"}{end}{"devices: "}{.spec.containers[0].resources.limits}{"\n"}'
"$kubectl" --namespace "$NAMESPACE" get pod "$pod" -o 'jsonpath={.metadata.annotations.railwright\.io/injection}{"\n"}'

cat <<EOF

railwright runs, and the job's pods have their rails. Next:
  kubectl -n $NAMESPACE get pods
  railwright explain pod/$pod -n $NAMESPACE
  hack/quickstart/quickstart.sh --delete
EOF
