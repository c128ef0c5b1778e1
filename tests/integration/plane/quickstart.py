"""hack/quickstart/quickstart.sh run as a user runs it, with the plane as the cluster."""

import asyncio
import os
import pathlib
import sys

from plane import binaries, helm, plane, releases

SCRIPT = releases.ROOT / "hack" / "quickstart" / "quickstart.sh"
NAMESPACE = "railwright-quickstart"


async def run(running: plane.Plane, folder: pathlib.Path, *options: str) -> tuple[int, str]:
    """Run the script; return its exit code and output. `folder` gets Helm's files.

    Its programs are kubectl, Helm and this environment's railwright.
    """
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    programs = {"KUBECTL": str(binaries.locate()["kubectl"]), "HELM": str(helm.locate()), "PATH": path}
    home = {f"HELM_{part}_HOME": str(folder / part.lower()) for part in ("CACHE", "CONFIG", "DATA")}
    process = await asyncio.create_subprocess_exec(
        *(*running.enter, str(SCRIPT), *options),
        env={**os.environ, **programs, **home, "KUBECONFIG": str(running.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode is not None
    return process.returncode, output.decode()
