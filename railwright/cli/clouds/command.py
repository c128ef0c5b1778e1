"""Runs `railwright policy init`: prints a first policy."""

import argparse
import sys

from railwright.cli import output
from railwright.cli.clouds import first_policies, profiles


def print_policy(arguments: argparse.Namespace) -> int:
    """Print the policy of a profile or of a cluster and return 0. Raise UnreadableError or ClusterError."""
    if not arguments.cloud and not arguments.from_cluster:
        raise output.UnreadableError(f"give --from-cluster, or --cloud NAME; {profiles.format_names()}")
    chosen = [profiles.find(arguments.cloud)] if arguments.cloud else profiles.list_profiles()
    if not arguments.from_cluster:
        sys.stdout.write(first_policies.write_profile(chosen[0]))
        return output.OK
    from railwright.cli import cluster_access, options
    from railwright.cli.clouds import cluster_objects

    cluster = cluster_access.run(options.get_cluster(arguments), cluster_objects.read, "a profile: --cloud NAME")
    sys.stdout.write(first_policies.write_cluster(cluster, chosen))
    return output.OK
