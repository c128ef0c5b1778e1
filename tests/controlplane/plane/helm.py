"""Helm: where its program comes from, and how tests run it.

A Go module of its own with Kubernetes' libraries at the versions of its neighbours, built once into a cache folder that
its own sums name. Standard library only, as `binaries`.
"""

import asyncio
import hashlib
import os
import pathlib
import platform
import re
import sys
import time

from plane import binaries

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "manifests" / "chart"
NAMESPACE, RELEASE = "railwright-system", "railwright"
_PACKAGE = "helm.sh/helm/v3/cmd/helm"
_MODULE = binaries.FOLDER / "helm"
# what Helm's own Makefile stamps in: its version, and the one of Kubernetes that `helm template` assumes
_STAMP = (
    "-s -w -X helm.sh/helm/v3/internal/version.version={} "
    "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34 "
    "-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=34"
)


class FailedError(Exception):
    """Helm ended with another code than 0; the text is what it said."""


def folder() -> pathlib.Path:
    """The cache folder of exactly these sums, flags and this kind of machine."""
    digest = hashlib.sha256(_STAMP.encode())
    for part in ("go.mod", "go.sum"):
        digest.update((_MODULE / part).read_bytes())
    return binaries.cache() / f"helm-{sys.platform}-{platform.machine()}-{digest.hexdigest()[:16]}"


def locate() -> pathlib.Path:
    """The program. Raises FileNotFoundError that says how to build it."""
    program = folder() / "helm"
    if not os.access(program, os.X_OK):
        raise FileNotFoundError(f"{program} is missing; run: .venv/bin/python tests/controlplane/build.py")
    return program


def build() -> None:
    """Build what is missing, telling a line."""
    target = folder()
    with binaries.alone(target):
        if os.access(target / "helm", os.X_OK):
            binaries.tell("helm: there")
            return
        started = time.monotonic()
        found = re.search(r"helm\.sh/helm/v3 (v\S+)", (_MODULE / "go.mod").read_text())
        assert found is not None
        temporary = target / f".helm.{os.getpid()}"
        command = [binaries.toolchain(), "build", "-buildvcs=false", "-ldflags", _STAMP.format(found.group(1))]
        binaries.run([*command, "-o", str(temporary), _PACKAGE], _MODULE)
        temporary.replace(target / "helm")
        binaries.tell(f"helm: built in {time.monotonic() - started:.0f} s")


class Helm:
    """Runs the program, with no configuration and cache but the test's own."""

    def __init__(
        self, home: pathlib.Path, kubeconfig: pathlib.Path | str = os.devnull, *, namespace: str = NAMESPACE
    ) -> None:
        """`namespace` empty: as the arguments say."""
        self._program, self._home, self._kubeconfig = locate(), home, str(kubeconfig)
        self._common = (f"--namespace={namespace}",) if namespace else ()

    async def __call__(self, *arguments: str) -> str:
        """What it wrote to standard output. Raises FailedError."""
        places = {f"HELM_{each}_HOME": str(self._home / each.lower()) for each in ("CACHE", "CONFIG", "DATA")}
        process = await asyncio.create_subprocess_exec(
            *(str(self._program), *arguments, *self._common),
            env={"PATH": os.environ["PATH"], "HOME": str(self._home), "KUBECONFIG": self._kubeconfig, **places},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, said = await asyncio.wait_for(process.communicate(), 120)
        if process.returncode:
            raise FailedError(said.decode() + out.decode())
        return out.decode()

    async def install(self, *options: str) -> str:
        """A first release of the chart. The namespace is there or made by the options."""
        return await self("install", RELEASE, str(CHART), *options)

    async def upgrade(self, *options: str) -> str:
        """The next release."""
        return await self("upgrade", RELEASE, str(CHART), *options)
