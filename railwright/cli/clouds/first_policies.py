"""Runs `railwright policy init`: writes a first policy of a profile, or with a fabric for each node shape of a cluster.

Comments say where values come from, what is missing in the cluster, and what is not known.
"""

import argparse
import collections
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from railwright.cli import cluster_access, options, output
from railwright.cli.clouds import cluster_objects, derivation, matching, profiles
from railwright.cli.clouds.cluster_objects import Cluster
from railwright.cli.clouds.derivation import Section
from railwright.cluster import policies
from railwright.fabric import node_views, text

_WIDTH = 118  # columns of comments
_HEAD = "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy"
_FIRST = "A first policy, by `railwright policy init`. Read the comments. When it is installed: railwright check"


def print_policy(arguments: argparse.Namespace) -> int:
    """Print the policy of a profile or of a cluster and return 0. Raise UnreadableError or ClusterError."""
    if not arguments.cloud and not arguments.from_cluster:
        raise output.UnreadableError(f"give --from-cluster, or --cloud NAME; {profiles.format_names()}")
    chosen = [profiles.find(arguments.cloud)] if arguments.cloud else profiles.list_profiles()
    if arguments.from_cluster:
        cluster = cluster_access.run(options.get_cluster(arguments), cluster_objects.read, "a profile: --cloud NAME")
        sys.stdout.write(write_cluster(cluster, chosen))
    else:
        sys.stdout.write(write_profile(chosen[0]))
    return output.OK


def write_profile(profile: profiles.Profile) -> str:
    """Return the policy of a profile, with all its shapes."""
    shapes = [shape.title for shape in profiles.list_shapes(profile)]
    comments = [
        _FIRST,
        f"From the profile {profile.name}: {'; '.join(shapes)}. Remove the fabrics of shapes that you do not have.",
        *_describe(profile),
    ]
    return "".join(f"{line}\n" for line in _format_comments(comments, "")) + profile.read_text("policy.yaml")


def write_cluster(cluster: Cluster, candidates: Sequence[profiles.Profile]) -> str:
    """Return the policy of a cluster. Nodes that no shape of the candidates fits get derived fabrics.

    Raises UnreadableError if no node shows a fabric.
    """
    shapes = [shape for profile in candidates for shape in profiles.list_shapes(profile)]
    groups: dict[tuple[str, str], list[tuple[node_views.Node, matching.Match]]] = {}
    others: list[node_views.Node] = []
    for node, match in matching.match_nodes(cluster, shapes):
        if match is not None:
            groups.setdefault((match.shape.profile.name, match.shape.fabric_name), []).append((node, match))
        elif matching.count_gpus(node, cluster):
            others.append(node)
    sections = [_write_shape(members, cluster) for members in groups.values()]
    derived = list(derivation.derive(others, cluster))
    sections += [section for section in derived if section.lines]
    unknown = [section for section in derived if not section.lines]
    if not sections:
        raise output.UnreadableError(_describe_nothing(cluster, unknown))
    result = "".join(f"{line}\n" for line in _format_policy(sections, [*_list_gaps(cluster, unknown)]))
    read = policies.read(result)
    if isinstance(read, policies.Rejected):
        raise output.UnreadableError(
            f"the policy that the cluster shows is not valid: {'; '.join(map(str, read.errors[:3]))}; begin with a"
            f" profile: --cloud NAME; {profiles.format_names()}"
        )
    return result


# --- sections -----------------------------------------------------------------------------------------------


def _write_shape(members: Sequence[tuple[node_views.Node, matching.Match]], cluster: Cluster) -> Section:
    """Return the section of nodes with the same fabric of a profile."""
    first = members[0][1]
    profile = first.shape.profile
    nodes = [node for node, _ in members]
    titles = dict.fromkeys(match.shape.title for _, match in members)
    missing = collections.Counter(need for _, match in members for need in match.missing)
    comments = [
        f"{derivation.name_nodes(nodes)}: {text.join_first(map(str, first.present), 6)}.",
        f"From the profile {profile.name}: {'; '.join(titles)}.",
        *_describe(profile),
        *[
            f"NOT KNOWN: the nodes do not tell it from {title}: --cloud {profile.name} prints both."
            for title in first.equals
        ],
        *_describe_missing(missing, len(members)),
        *_describe_unused(first.shape, members[0][0], cluster),
    ]
    lines = profiles.read_fabric_text(profile, first.shape.fabric_name)[1:]
    pools = frozenset(rail.resource for rail in first.shape.fabric.rails if rail.resource)
    return Section(
        first.shape.fabric_name,
        profile.name,
        nodes,
        lines,
        comments,
        profile.policy.document.accelerators,
        pools,
        profiles.read_shapes_text(profile),
    )


def _describe_missing(missing: collections.Counter[matching.Need], nodes: int) -> Iterator[str]:
    for need, count in missing.items():
        where = "" if count == nodes else " on " + text.format_count(nodes, "node", part=count)
        yield f"MISSING{where}: {need}."


def _describe_unused(shape: profiles.Shape, node: node_views.Node, cluster: Cluster) -> Iterator[str]:
    """Say that NICs are also in slices, if the profile takes them from device plugins."""
    offering = derivation.list_claimed(node, cluster)
    if offering and shape.fabric.claims is None:
        yield f"NOT USED: the ResourceSlices of driver {', '.join(offering)}, because the profile has device plugins."


def _describe(profile: profiles.Profile) -> list[str]:
    return [
        f"The values are those of {profile.source}.",
        f"The site installs {profile.installs}.",
        f"Not verified: {profile.unverified}.",
    ]


# --- the document -------------------------------------------------------------------------------------------


def _format_policy(sections: Sequence[Section], gaps: Sequence[str]) -> Iterator[str]:
    named = _choose_names(sections)
    largest = max(named, key=lambda name: len(named[name].nodes))
    accelerators = list(dict.fromkeys(name for section in sections for name in section.accelerators))
    yield from _format_comments([_FIRST, *gaps], "")
    yield from _HEAD.splitlines()
    yield f"defaultFabric: {largest}" + ("  # that of most nodes: jobs on others name theirs" if len(named) > 1 else "")
    if accelerators:
        yield f"accelerators: [{', '.join(accelerators)}]"
    yield "fabrics:"
    yield from _format_comments(_list_common_pools(named), "  ")
    for name, section in named.items():
        yield from _format_comments(section.comments, "  ")
        yield f"  {name}:"
        yield from section.lines
    shapes = {section.origin: section.shapes for section in sections if section.shapes}
    if shapes:
        yield "nodeShapes:"
        yield from (line for lines in shapes.values() for line in lines)


def _list_common_pools(named: Mapping[str, Section]) -> Iterator[str]:
    """Say which resources do not tell the nodes of two fabrics apart."""
    by_fabrics: dict[str, list[str]] = {}
    for pool in sorted({pool for section in named.values() for pool in section.pools}):
        sharing = [name for name, section in named.items() if pool in section.pools]
        if len(sharing) > 1:
            by_fabrics.setdefault(", ".join(sharing), []).append(pool)
    for fabrics, pools in by_fabrics.items():
        what = f"{pools[0]} is a resource" if len(pools) == 1 else f"{text.join_first(pools, 3)} are resources"
        yield f"{what} of {fabrics}: jobs must select their nodes, as by instance type."


def _choose_names(sections: Sequence[Section]) -> dict[str, Section]:
    """Return the sections by the names of their fabrics, with that of the profile where two are equal."""
    counts = collections.Counter(section.name for section in sections)
    return {
        section.name if counts[section.name] == 1 else f"{section.origin}-{section.name}": section
        for section in sections
    }


def _format_comments(comments: Iterable[str], indent: str) -> Iterator[str]:
    for comment in comments:
        start = f"{indent}# "
        yield from textwrap.wrap(
            re.sub(r"\s+", " ", comment),
            _WIDTH,
            initial_indent=start,
            subsequent_indent=f"{start}  ",
            break_on_hyphens=False,
        )


def _list_gaps(cluster: Cluster, unknown: Sequence[Section]) -> Iterator[str]:
    if cluster.unread:
        yield f"NOT READ, because you may not list them: {', '.join(sorted(cluster.unread))}."
    for section in unknown:
        yield f"NO FABRIC for {_describe_unknown(section)}."


def _describe_unknown(section: Section) -> str:
    return f"{derivation.name_nodes(section.nodes)}: {'; '.join(section.comments)}"


def _describe_nothing(cluster: Cluster, unknown: Sequence[Section]) -> str:
    problem = "; ".join(map(_describe_unknown, unknown[:3])) or (
        f"none of {text.format_count(len(cluster.nodes), 'node')} has an accelerator or the labels of a profile"
    )
    unread = f"; you may not list {', '.join(sorted(cluster.unread))}" if cluster.unread else ""
    return (
        f"the cluster shows no fabric: {problem}{unread}. Install the device plugin or DRA driver of the NICs, or begin"
        f" with a profile: railwright policy init --cloud NAME; {profiles.format_names()}"
    )
