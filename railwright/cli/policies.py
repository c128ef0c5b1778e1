"""Reads the policy for a command: from a file, or from the ConfigMap in a cluster.

Imports the validator and the client of the API server only for a command that reads a policy.
"""

import pkgutil

from railwright.cli import output
from railwright.fabric.policy import model

_READ_FILE = "railwright.cli.policy_sources:read_file"
_READ_CLUSTER = "railwright.cli.policy_sources:read_cluster"


def read_file(path: str) -> model.Policy:
    """Return the policy in a file, `-` for standard input. Raise UnreadableError with all its errors."""
    policy: model.Policy = pkgutil.resolve_name(_READ_FILE)(path)
    return policy


def read(path: str | None, kubeconfig: str, context: str | None) -> model.Policy:
    """Return the policy in the file `path` if there is one, otherwise the policy in the cluster.

    Raises UnreadableError or ClusterError.
    """
    if path:
        return read_file(path)
    policy: model.Policy = pkgutil.resolve_name(_READ_CLUSTER)(kubeconfig, context)
    return policy


def find_fabric(policy: model.Policy, name: str) -> str:
    """Return the name of a fabric of the policy, "" for its default. Raise UnreadableError if it is not defined."""
    fabrics = policy.document.fabrics
    fabric_name = name or policy.document.default_fabric or (next(iter(fabrics)) if len(fabrics) == 1 else "")
    if fabric_name not in fabrics:
        problem = f"--fabric {name}: not defined in the policy" if name else "--fabric NAME is missing"
        raise output.UnreadableError(f"{problem} (defined: {', '.join(fabrics)})")
    return fabric_name
