"""Lists the commands that parse their own options. They start without the imports of the others."""

from collections.abc import Mapping
from typing import NamedTuple


class Program(NamedTuple):
    """A command with a help text and its function of the remaining words, as MODULE:FUNCTION."""

    summary: str
    main: str


PROGRAMS: Mapping[str, Program] = {
    "extender": Program("Run the scheduler extender.", "extender.__main__:main"),
    "preflight": Program(
        "Check that the rails of this container are ready for NCCL.", "railwright.preflight.__main__:main"
    ),
    "webhook": Program("Run the admission webhook.", "webhook.__main__:main"),
}
