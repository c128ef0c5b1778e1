"""`railwright extender`: the extender server; its own parser reads everything after the word."""

from collections.abc import Sequence

NAME = "extender"
HELP = "the scheduler extender server"


def forward(argv: Sequence[str]) -> int:
    """Hand the arguments on; answers the server's exit code."""
    from extender.__main__ import main  # noqa: PLC0415 - a server's imports are not needed by any other command

    return main(argv)
