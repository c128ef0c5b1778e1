"""Builds Helm once into a cache.

A Go module of its own with Kubernetes' libraries at the versions of its neighbours, built once into a cache folder that
its own sums name. Standard library only, as `binaries`.
"""

import os
import pathlib
import re
import time

from plane import binaries

_PACKAGE = "helm.sh/helm/v3/cmd/helm"
_MODULE = binaries.FOLDER / "helm"
# what Helm's own Makefile stamps in: its version, and the one of Kubernetes that `helm template` assumes
_STAMP = (
    "-s -w -X helm.sh/helm/v3/internal/version.version={} "
    "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34 "
    "-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=34"
)


def folder() -> pathlib.Path:
    """Return the cache folder for these sums and flags and this machine type."""
    return binaries.cached("helm", _STAMP.encode(), *binaries.sums(_MODULE))


def locate() -> pathlib.Path:
    """Return the program. Raises FileNotFoundError that says how to build it."""
    program = folder() / "helm"
    if not os.access(program, os.X_OK):
        raise FileNotFoundError(f"{program} is missing; run: .venv/bin/python tests/integration/build.py")
    return program


def build() -> None:
    """Build what is missing, telling a line."""
    target = folder()
    with binaries.alone(target):
        if os.access(target / "helm", os.X_OK):
            binaries.tell("helm: there")
            return
        started = time.monotonic()
        match = re.search(r"helm\.sh/helm/v3 (v\S+)", (_MODULE / "go.mod").read_text())
        assert match is not None
        program = binaries.Program(_PACKAGE, _MODULE.name, _STAMP.format(match.group(1)))
        binaries.compile_program(binaries.toolchain(), program, binaries.FOLDER, target / "helm")
        binaries.tell(f"helm: built in {time.monotonic() - started:.0f} s")
