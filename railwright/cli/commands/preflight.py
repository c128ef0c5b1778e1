"""`railwright preflight`: the check of a container's rails; its own parser reads everything after the word."""

from collections.abc import Sequence

NAME = "preflight"
HELP = "are the rails of this container ready for NCCL?"


def forward(argv: Sequence[str]) -> int:
    """Hand the arguments on; answers the check's exit code."""
    from railwright.preflight.__main__ import main  # noqa: PLC0415 - no other command needs it

    return main(argv)
