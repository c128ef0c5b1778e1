"""Reads the variables of an nccl.conf with lint's parser."""

from railwright.fabric.lint import rank_contexts


def read(text: str) -> dict[str, str]:
    """Return the variables of a file; the first line of each name wins."""
    return {line.name: line.value for line in reversed(rank_contexts.read_nccl_conf(text))}
