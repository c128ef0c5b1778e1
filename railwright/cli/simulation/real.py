"""A real cluster's nodes and policy from files, as a site to simulate on."""

from railwright.cli import output, snapshot_files
from railwright.cluster import manifests, policies
from railwright.fabric import views
from railwright.simulator import cluster_specs


def read(nodes_path: str, policy_path: str) -> cluster_specs.ClusterSpec:
    """The site. Raises UnreadableError, and SiteError where the nodes make no simulation."""
    policy = manifests.read(output.read_text(policy_path))
    if isinstance(policy, policies.Rejected):
        first = policy.errors[0]
        place = policy_path if first.line is None else f"{policy_path}:{first.line}"
        told = ": ".join(filter(None, (place, first.path, first.message)))
        raise output.UnreadableError(f"{told}; `railwright policy validate {policy_path}` shows all errors")
    found: list[views.Node] = snapshot_files.read(nodes_path, "--nodes", needs="Node")["Node"]
    return cluster_specs.from_nodes(found, policy.document, f"nodes of {output.visible(nodes_path)}")
