"""Options of the commands that show a cluster: as for kubectl, and files instead of a cluster."""

import argparse

from railwright.cli.viewing import forms


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="kubeconfig of the cluster (default: as for kubectl)"
    )
    parser.add_argument("--context", metavar="NAME", default=None, help="context of the kubeconfig")
    parser.add_argument("--snapshot", metavar="FILE", default="", help="read objects from a file instead of a cluster")
    parser.add_argument(
        "--policy", metavar="FILE", default="", help="read the policy from a file (default: from the cluster)"
    )
    parser.add_argument(
        "-o", "--output", choices=forms.NAMES, default="text", help="output format; wide shows all columns"
    )
