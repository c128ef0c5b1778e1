"""Builds the programs and images of the tests on real nodes, once: `.venv/bin/python tests/e2e/build.py`.

With `--main`, only those of the main tests; with `--demo`, only those of the demo cluster.
"""

import pathlib
import sys
from collections.abc import Callable, Mapping

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "support")]

import debian  # noqa: E402 - the path comes first
from plane import binaries, helm, operators  # noqa: E402
from realnode import builds, dranet_build, machine, mpi_image, project_image, rdma_image  # noqa: E402

MAIN_IMAGES = {"virtual machine and image of perftest": rdma_image.build}
IMAGES = {**MAIN_IMAGES, "image of Open MPI": mpi_image.build}  # of single tests


def build() -> int:
    """Build what is missing. Return 1 if this machine cannot run the demo.

    Without `--demo` that is no failure, because tests that cannot run are skipped.
    """
    is_demo, is_main = "--demo" in sys.argv, "--main" in sys.argv
    reason = machine.find_obstacle() or (project_image.find_obstacle() if is_demo else "")
    try:
        if not reason:
            builds.fetch_packages()
    except debian.UnavailableError as error:
        reason = str(error)
    if reason:
        print(f"no real nodes on this machine: {reason}", file=sys.stderr)
        return int(is_demo)
    controllers = ["jobset"] if is_demo else operators.OPERATORS
    plane = [*binaries.list_steps(builds.CONTROL_PLANE), *operators.list_steps(controllers), helm.get_step()]
    kubelet = [] if is_demo else [builds.get_kubelet_step()]
    dranet = [] if is_main or is_demo else [dranet_build.get_step()]
    binaries.build([*plane, *builds.list_steps(), *kubelet, *dranet])
    project_image.build()
    if not is_demo:
        _make_images(MAIN_IMAGES if is_main else IMAGES)
    print(f"programs of real nodes ready in {builds.folder()}")
    return 0


def _make_images(images: Mapping[str, Callable[[], object]]) -> None:
    """Make the images that single tests need; a test without its image is skipped."""
    for name, make in images.items():
        binaries.tell(f"{name}: fetching and building what is missing")
        try:
            make()
        except debian.UnavailableError as error:
            print(error)


if __name__ == "__main__":
    sys.exit(binaries.run_build(build))
