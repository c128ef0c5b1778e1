"""Builds the control plane for the tests: `.venv/bin/python tests/integration/build.py`. Quick where it is cached."""

import sys

from plane import binaries, helm, operators


def build() -> int:
    """Build what is missing."""
    binaries.build([*binaries.list_steps(), *operators.list_steps(), helm.get_step()])
    print(f"control plane ready in {binaries.folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(binaries.run_build(build))
