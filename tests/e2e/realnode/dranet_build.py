"""Builds dranet from its Go module, once, into a cache of its own, because only one test needs it.

Standard library only, as `builds`.
"""

import dataclasses
import pathlib
import shutil

from plane import binaries

from realnode import builds

_MODULE = "sigs.k8s.io/dranet"
_PROGRAM = binaries.Program(f"{_MODULE}/cmd/dranet", module="dranet", ldflags="-s -w")


@dataclasses.dataclass(frozen=True)
class Build:
    """The program, and the manifest that installs it."""

    program: pathlib.Path
    manifest: pathlib.Path


def locate() -> Build:
    """Return the build. Raises FileNotFoundError that says what is missing and how to build it."""
    ready = Build(_folder() / "dranet", _folder() / "install.yaml")
    for path in (ready.program, ready.manifest):
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; run: .venv/bin/python tests/e2e/build.py")
    return ready


def get_step() -> binaries.Step:
    """Return the step that builds it."""
    manifest = _folder() / "install.yaml"
    return binaries.Step("dranet", _folder(), lambda: manifest if manifest.exists() else None, _build)


def _build() -> None:
    folder, go = _folder(), binaries.toolchain()
    binaries.compile_program(go, _PROGRAM, builds.FOLDER, folder / "dranet")
    source = binaries.module_folder(go, _MODULE, builds.FOLDER / _PROGRAM.module)
    shutil.copyfile(source / "install.yaml", folder / ".install.yaml")
    (folder / ".install.yaml").rename(folder / "install.yaml")


def _folder() -> pathlib.Path:
    return binaries.get_cache_folder(
        "node-dranet", repr(_PROGRAM).encode(), *binaries.sums(builds.FOLDER / _PROGRAM.module)
    )
