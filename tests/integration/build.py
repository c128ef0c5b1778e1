"""Builds the control plane of the tests, unless it is cached: `.venv/bin/python tests/integration/build.py`."""

import sys

from plane import binaries, helm, operators


def build() -> int:
    """Build what is missing."""
    binaries.build([*binaries.list_steps(), *operators.list_steps(), helm.get_step()])
    print(f"control plane ready in {binaries.folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(binaries.run_build(build))
