"""A cluster of two real nodes with railwright and a training job, to look at: `make demo-cluster DEMO_ARGS=--keep`.

It is the site of the tests in this folder. It ends with this program, and leaves nothing.
"""

import argparse
import asyncio
import pathlib
import shutil
import signal
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / name) for name in ("controlplane", "support")] + [str(TESTS.parent)]

from plane import binaries, helm, jobs  # noqa: E402 - the path comes first
from realnode import installation, machine, project_image, rails, site  # noqa: E402

_POD = "rdma-test-worker-0"


def main() -> int:
    """Run the demo; 1 where this machine cannot."""
    parser = argparse.ArgumentParser(description="A cluster of two real nodes with railwright and a training job.")
    parser.add_argument("--keep", action="store_true", help="keep the cluster until Ctrl-C")
    arguments = parser.parse_args()
    if reason := machine.find_obstacle() or project_image.find_obstacle():
        print(f"no real nodes on this machine: {reason}", file=sys.stderr)
        return 1
    folder = pathlib.Path(tempfile.mkdtemp(prefix="railwright-site-"))
    try:
        asyncio.run(_show(folder, keep=arguments.keep))
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


async def _show(folder: pathlib.Path, *, keep: bool) -> None:
    image = project_image.build()
    assert image is not None, "find_obstacle has said that it can be built"
    print("starting a control plane and two nodes", flush=True)
    async with site.run(folder) as running:
        print("installing railwright", flush=True)
        release = installation.Installation(running, image, folder / "helm")
        await rails.install(running.plane)
        await release.install(rails.describe_policy(image))
        await running.plane.call_extender()
        print("creating the job of manifests/examples/360-roce, with a worker more", flush=True)
        await running.plane.api.create(rails.describe_job())
        await jobs.pods(running.plane.api, rails.NAMESPACE, "volcano.sh/job-name=rdma-test", 2)
        print(await running.plane.kubectl("get", "pods", "--all-namespaces", "--output=wide"))
        print(await release.run("gangs", "--output=wide"))
        print(f"interfaces of {_POD}:\n{await running.execute(rails.NAMESPACE, _POD, 'ip', '-o', '-4', 'addr')}")
        if keep:
            await _wait_for_interrupt(running)


async def _wait_for_interrupt(running: site.Site) -> None:
    programs = (binaries.locate()["kubectl"], helm.locate(), sys.executable)
    folders = ":".join(str(pathlib.Path(program).parent) for program in programs)
    print("The cluster runs until Ctrl-C. In another terminal, a shell with kubectl, helm and railwright for it:\n")
    print(f"  export KUBECONFIG={running.plane.kubeconfig} PATH={folders}:$PATH")
    print(f"  {' '.join(running.network.enter)} bash\n", flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()


if __name__ == "__main__":
    sys.exit(main())
