"""Builds what the tests on real nodes need: `.venv/bin/python tests/node/build.py`. Quick where it is cached.

With `--main`, what `make test` needs: the control plane in any case, and what the main tests on real nodes need.
"""

import pathlib
import signal
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "controlplane"), str(TESTS / "support")]

import debian  # noqa: E402 - the path comes first
from plane import binaries, helm, operators  # noqa: E402
from realnode import builds, dranet_build, machine, mpi_image, project_image, torch_image, virtual_machine  # noqa: E402


def main() -> int:
    """Build what is missing; 0 when everything is there or cannot be used here, 1 when a build failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that compilers are ended too
    reason, is_main = machine.find_obstacle(), "--main" in sys.argv
    try:
        if not reason or is_main:
            operators.build(binaries.build()["kubectl"])
            helm.build()
        if reason:
            print(f"no real nodes on this machine: {reason}")
            return 0
        builds.fetch_packages()
        ready = builds.build()
        project_image.build()
        if not is_main:
            _fetch_more()
    except debian.UnavailableError as error:
        print(f"no real nodes on this machine: {error}")
        return 0
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(map(str, error.cmd))} (exit {error.returncode})", file=sys.stderr)
        return 1
    print(f"programs of real nodes ready in {ready.programs}")
    return 0


def _fetch_more() -> None:
    """Fetch and build what single tests need; a test whose part is not available says so and is skipped."""
    for fetch in (dranet_build.build, mpi_image.build, torch_image.build, virtual_machine.prepare):
        try:
            fetch()
        except debian.UnavailableError as error:
            print(error)


if __name__ == "__main__":
    sys.exit(main())
