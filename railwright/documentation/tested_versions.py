"""Reads from the Go modules of the tests which versions of a cluster's parts are tested."""

import json
import pathlib
import re
from collections.abc import Mapping

from railwright.documentation import examples

DATA = examples.ROOT / "railwright" / "cli" / "checking" / "tested_versions.json"
_TESTS = examples.ROOT / "tests"
_MODULES = {  # Go module, and the file that pins it for the build of the tests
    "Kubernetes": ("k8s.io/kubernetes", "controlplane/go.mod"),
    "etcd": ("go.etcd.io/etcd/server/v3", "controlplane/go.mod"),
    "Volcano": ("volcano.sh/volcano", "controlplane/go.mod"),
    "Helm": ("helm.sh/helm/v3", "controlplane/helm/go.mod"),
    "JobSet": ("sigs.k8s.io/jobset", "controlplane/jobset/go.mod"),
    "LeaderWorkerSet": ("sigs.k8s.io/lws", "controlplane/lws/go.mod"),
    "MPI Operator": ("github.com/kubeflow/mpi-operator", "controlplane/mpi-operator/go.mod"),
    "Kubeflow Training Operator": ("github.com/kubeflow/training-operator", "controlplane/training-operator/go.mod"),
    "Multus": ("gopkg.in/k8snetworkplumbingwg/multus-cni.v4", "node/multus/go.mod"),
    "CNI plugins": ("github.com/containernetworking/plugins", "node/go.mod"),
    "whereabouts": ("github.com/k8snetworkplumbingwg/whereabouts", "node/go.mod"),
    "CoreDNS": ("github.com/coredns/coredns", "node/coredns/go.mod"),
}


def read_versions() -> Mapping[str, str]:
    """Return the tested version of each part, in the order in which they are listed."""
    return {name: _read_version(module, _TESTS / path) for name, (module, path) in _MODULES.items()}


def format_table() -> str:
    """Return the versions as a Markdown table."""
    rows = [f"| {name} | {version} |" for name, version in read_versions().items()]
    return "\n".join(["| part | tested version |", "|---|---|", *rows])


def format_data() -> str:
    """Return the file that `railwright check` reads."""
    return json.dumps(read_versions(), indent=1) + "\n"


def _read_version(module: str, path: pathlib.Path) -> str:
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise LookupError(f"{path}: {module} is not pinned")
    return match[1]
