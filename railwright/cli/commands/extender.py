"""`railwright extender`: runs the extender server, which parses its own options."""

from collections.abc import Sequence

NAME = "extender"
HELP = "the scheduler extender server"


def forward(argv: Sequence[str]) -> int:
    """Run the server and return its exit code."""
    from extender.__main__ import main  # noqa: PLC0415 - no other command needs the server's imports

    return main(argv)
