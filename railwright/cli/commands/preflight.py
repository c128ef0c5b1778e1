"""`railwright preflight`: checks a container's rails; it parses its own options."""

from collections.abc import Sequence

NAME = "preflight"
HELP = "check that the rails of this container are ready for NCCL"


def forward(argv: Sequence[str]) -> int:
    """Run the check and return its exit code."""
    from railwright.preflight.__main__ import main  # noqa: PLC0415 - no other command needs it

    return main(argv)
