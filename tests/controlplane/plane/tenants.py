"""Runs commands of railwright as a user with few rights, and has the policy of the fabric that such a user sees."""

import asyncio
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[3]
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
defaultFabric: ib
fabrics:
  ib:
    transport: infiniband
    gpusPerNode: 8
    rails: [{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}]
    mounts: {sharedMemory: 1Gi}
    security: {capabilities: [IPC_LOCK]}
"""
_TIMEOUT_SECONDS = 60


async def run_command(
    words: tuple[str, ...], *, kubeconfig: pathlib.Path, folder: pathlib.Path, stdin: str = ""
) -> tuple[int, str, str]:
    """Run `railwright WORDS` in `folder`, which is also its home. Return exit code, stdout and stderr."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "railwright.cli", *words,
        cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), _TIMEOUT_SECONDS)
    return process.returncode, out.decode(), err.decode()
