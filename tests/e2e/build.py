"""Builds what the tests on real nodes need: `.venv/bin/python tests/e2e/build.py`. Quick where it is cached.

With `--main`, what `make test` needs: the control plane in any case, and what the main tests on real nodes need. With
`--demo`, what `make demo-cluster` shows.
"""

import pathlib
import signal
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "support")]

import debian  # noqa: E402 - the path comes first
from plane import binaries, helm, operators  # noqa: E402
from realnode import builds, dranet_build, machine, mpi_image, project_image, torch_image, virtual_machine  # noqa: E402


def main() -> int:
    """Build what is missing; 1 when a build failed, or when this machine cannot run the demo.

    Tests are skipped where they cannot run, so that is no failure without `--demo`.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that compilers are ended too
    is_demo, is_main = "--demo" in sys.argv, "--main" in sys.argv
    reason = machine.find_obstacle() or (project_image.find_obstacle() if is_demo else "")
    try:
        if not reason:
            builds.fetch_packages()
    except debian.UnavailableError as error:
        reason = str(error)
    try:
        if not reason or is_main:
            _build_control_plane(is_demo=is_demo)
        if reason:
            print(f"no real nodes on this machine: {reason}", file=sys.stderr)
            return int(is_demo)
        ready = builds.build()
        project_image.build()
        if not (is_main or is_demo):
            _fetch_more()
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(map(str, error.cmd))} (exit {error.returncode})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"programs of real nodes ready in {ready.programs}")
    return 0


def _build_control_plane(*, is_demo: bool) -> None:
    ready = binaries.build(builds.CONTROL_PLANE if is_demo else binaries.PROGRAMS)
    operators.build(ready["kubectl"], ["jobset"] if is_demo else operators.OPERATORS)
    helm.build()


def _fetch_more() -> None:
    """Fetch and build what single tests need; a test whose part is not available says so and is skipped."""
    for fetch in (dranet_build.build, mpi_image.build, torch_image.build, virtual_machine.prepare):
        try:
            fetch()
        except debian.UnavailableError as error:
            print(error)


if __name__ == "__main__":
    sys.exit(main())
