"""Reads the tested versions of Kubernetes, schedulers and controllers from the Go modules of the tests."""

import pathlib
import re
from collections.abc import Mapping, Sequence

from documentation import markdown

_TESTS = markdown.ROOT / "tests"
_MODULES = {  # Go module, and the files below tests that pin it, for the oldest release that is tested first
    "Kubernetes": ("k8s.io/kubernetes", "integration/oldest/go.mod", "integration/go.mod"),
    "etcd": ("go.etcd.io/etcd/server/v3", "integration/oldest/go.mod", "integration/go.mod"),
    "Volcano": ("volcano.sh/volcano", "integration/oldest/go.mod", "integration/volcano/go.mod"),
    "Helm": ("helm.sh/helm/v3", "integration/helm/go.mod"),
    "JobSet": ("sigs.k8s.io/jobset", "integration/jobset/go.mod"),
    "Kueue": ("sigs.k8s.io/kueue", "integration/kueue/go.mod"),
    "LeaderWorkerSet": ("sigs.k8s.io/lws", "integration/lws/go.mod"),
    "MPI Operator": ("github.com/kubeflow/mpi-operator", "integration/mpi-operator/go.mod"),
    "Kubeflow Training Operator": ("github.com/kubeflow/training-operator", "integration/training-operator/go.mod"),
    "Multus": ("gopkg.in/k8snetworkplumbingwg/multus-cni.v4", "e2e/multus/go.mod"),
    "CNI plugins": ("github.com/containernetworking/plugins", "e2e/go.mod"),
    "whereabouts": ("github.com/k8snetworkplumbingwg/whereabouts", "e2e/go.mod"),
    "dranet": ("sigs.k8s.io/dranet", "e2e/dranet/go.mod"),
    "CoreDNS": ("github.com/coredns/coredns", "e2e/coredns/go.mod"),
}


def read_versions() -> Mapping[str, Sequence[str]]:
    """Return the tested versions of each program, the oldest first."""
    return {
        name: [_read_version(module, _TESTS / path) for path in paths] for name, (module, *paths) in _MODULES.items()
    }


def format_versions() -> str:
    """Return a Markdown table of the tested versions."""
    rows = ((name, ", ".join(versions)) for name, versions in read_versions().items())
    return markdown.format_table(("part", "tested versions"), rows)


def _read_version(module: str, path: pathlib.Path) -> str:
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise LookupError(f"{path}: {module} is not pinned")
    return match[1]
