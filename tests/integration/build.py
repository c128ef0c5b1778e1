"""Builds the control plane for the tests: `.venv/bin/python tests/integration/build.py`. Quick where it is cached."""

import signal
import subprocess
import sys

from plane import binaries, helm, operators


def main() -> int:
    """Build what is missing; 0 when everything is there, 1 when a build failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that compilers are ended too
    try:
        ready = binaries.build()
        binaries.build_evaluator()
        operators.build(ready["kubectl"])
        helm.build()
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(map(str, error.cmd))} (exit {error.returncode})", file=sys.stderr)
        return 1
    print(f"control plane ready in {ready.crds.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
