"""Builds Helm once into a cache.

It has its own Go module, with the versions of Kubernetes' libraries that the other modules have, and its own cache
folder. Standard library only, as `binaries`.
"""

import pathlib

from plane import binaries

_PACKAGE, _MODULE = "helm.sh/helm/v3/cmd/helm", "helm"
# what Helm's own Makefile stamps in: its version, and the one of Kubernetes that `helm template` assumes
_STAMP = (
    "-s -w -X helm.sh/helm/v3/internal/version.version={} "
    "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34 "
    "-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=34"
)
_PROGRAM = binaries.Program(_PACKAGE, _MODULE, _STAMP.format(f"v{binaries.pinned_version(_PACKAGE, _MODULE)}"))
_FOLDER = binaries.get_cache_folder("helm", _STAMP.encode(), *binaries.sums(binaries.FOLDER / _MODULE))


def locate() -> pathlib.Path:
    """Return the program. Raises FileNotFoundError that says how to build it."""
    program = _find()
    if program is None:
        raise FileNotFoundError(f"{_FOLDER / 'helm'} is missing; run: .venv/bin/python tests/integration/build.py")
    return program


def get_step() -> binaries.Step:
    """Return the step that builds it."""
    return binaries.Step("helm", _FOLDER, _find, _build)


def _find() -> pathlib.Path | None:
    return binaries.find_built(_FOLDER / "helm")


def _build() -> None:
    binaries.compile_program(binaries.toolchain(), _PROGRAM, binaries.FOLDER, _FOLDER / "helm")
