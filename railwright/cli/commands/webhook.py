"""`railwright webhook`: runs the webhook server, which parses its own options."""

from collections.abc import Sequence

NAME = "webhook"
HELP = "the admission webhook server"


def forward(argv: Sequence[str]) -> int:
    """Run the server and return its exit code."""
    from webhook.__main__ import main  # noqa: PLC0415 - no other command needs the server's imports

    return main(argv)
