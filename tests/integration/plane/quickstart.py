"""hack/quickstart/quickstart.sh run as a user runs it, with the plane as the cluster."""

import asyncio
import os
import pathlib
import sys

from plane import binaries, helm, plane, processes, releases

SCRIPT = releases.ROOT / "hack" / "quickstart" / "quickstart.sh"
NAMESPACE = "railwright-quickstart"


async def run(running: plane.Plane, folder: pathlib.Path, *options: str) -> tuple[int, str]:
    """Run the script; return its exit code and output. `folder` gets Helm's files.

    Its programs are kubectl, Helm and this environment's railwright.
    """
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    programs = {"KUBECTL": str(binaries.locate()["kubectl"]), "HELM": str(helm.locate()), "PATH": path}
    home = {f"HELM_{part}_HOME": str(folder / part.lower()) for part in ("CACHE", "CONFIG", "DATA")}
    environment = {**os.environ, **programs, **home, "KUBECONFIG": str(running.kubeconfig)}
    command = (*running.enter, SCRIPT, *options)
    code, output, _ = await processes.run(*command, seconds=240, env=environment, stderr=asyncio.subprocess.STDOUT)
    return code, output
