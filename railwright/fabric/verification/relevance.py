"""Tells the lines of a log that a report reads from all others, so that a long log need not be kept."""

from railwright.fabric.verification import line_parser, patterns


def is_relevant(line: str) -> bool:
    """True for messages of NCCL about the network, and for results of nccl-tests."""
    for message in line_parser.parse(line):
        if message.level:
            return True
        if (
            patterns.parse_version(message.text)
            or patterns.parse_rank(message.text)
            or patterns.parse_average(message.text) is not None
            or patterns.parse_peak(message.text) is not None
            or patterns.parse_wrong_results(message.text)
        ):
            return True
    return False
