"""The options of commands that look at a cluster: kubectl's own words for where, and what stands in for a cluster.

Owns their spelling. Knows nothing of what is looked at.
"""

import argparse

from railwright.cli.viewing import forms


def add(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options."""
    parser.add_argument("--kubeconfig", metavar="FILE", default="", help="the cluster (default: as kubectl has it)")
    parser.add_argument("--context", metavar="NAME", default=None, help="a context of the kubeconfig")
    parser.add_argument("--snapshot", metavar="FILE", default="", help="objects from a file instead of a cluster")
    parser.add_argument("--policy", metavar="FILE", default="", help="the policy from a file (default: the cluster's)")
    parser.add_argument(
        "-o", "--output", choices=forms.NAMES, default="text", help="form of the answer; wide: all columns"
    )
