"""`railwright webhook`: the webhook server; its own parser reads everything after the word."""

from collections.abc import Sequence

NAME = "webhook"
HELP = "the admission webhook server"


def forward(argv: Sequence[str]) -> int:
    """Hand the arguments on; answers the server's exit code."""
    from webhook.__main__ import main  # noqa: PLC0415 - a server's imports are not needed by any other command

    return main(argv)
