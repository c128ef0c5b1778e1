"""Writes a first policy: of a profile, or with a fabric for each node shape of a cluster.

Comments say where values come from, what is missing in the cluster, and what is not known.
"""

import collections
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railwright.cli import output
from railwright.cli.clouds import derivation, matching, profiles
from railwright.cli.clouds.cluster_objects import Cluster
from railwright.cluster import policies
from railwright.fabric import node_views, text

_WIDTH = 118  # columns of comments
_HEAD = "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy"
_FIRST = "A first policy, by `railwright policy init`. Read the comments. When it is installed: railwright check"


class _Section(NamedTuple):
    """A fabric of the policy: its name, the lines of its keys, and the number of its nodes."""

    name: str
    lines: Sequence[str]
    comments: Sequence[str]
    nodes: int
    accelerators: Sequence[str] = ()


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
        elif derivation.is_accelerated(node, cluster):
            others.append(node)
    sections = [_write_shape(members) for members in groups.values()]
    derived = list(derivation.derive(others, cluster))
    sections += [_write_derived(fabric, index) for index, fabric in enumerate(filter(_has_rails, derived))]
    unknown = [fabric for fabric in derived if not _has_rails(fabric)]
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


def _has_rails(fabric: derivation.Fabric) -> bool:
    return bool(fabric.lines)


# --- sections -----------------------------------------------------------------------------------------------


def _write_shape(members: Sequence[tuple[node_views.Node, matching.Match]]) -> _Section:
    """Return the section of nodes with the same fabric of a profile."""
    first = members[0][1]
    profile = first.shape.profile
    titles = dict.fromkeys(match.shape.title for _, match in members)
    missing = collections.Counter(need for _, match in members for need in match.missing)
    comments = [
        f"{_name_nodes([node for node, _ in members])}: {text.join_first(map(str, first.present), 6)}.",
        f"From the profile {profile.name}: {'; '.join(titles)}.",
        *_describe(profile),
        *[
            f"NOT KNOWN: the nodes do not tell it from {title}: --cloud {profile.name} prints both."
            for title in first.equals
        ],
        *_describe_missing(missing, len(members)),
    ]
    lines = profiles.read_fabric_text(profile, first.shape.fabric_name)[1:]
    accelerators = profile.policy.document.accelerators
    return _Section(f"{first.shape.fabric_name} {profile.name}", lines, comments, len(members), accelerators)


def _describe_missing(missing: collections.Counter[matching.Need], nodes: int) -> Iterator[str]:
    for need, count in missing.items():
        where = "" if count == nodes else f" on {count} of {nodes} nodes"
        yield f"MISSING{where}: {need}."


def _describe(profile: profiles.Profile) -> list[str]:
    return [
        f"The values are those of {profile.source}.",
        f"The site installs {profile.installs}.",
        f"Not verified: {profile.unverified}.",
    ]


def _write_derived(fabric: derivation.Fabric, index: int) -> _Section:
    name = f"rdma{index or ''}"
    comments = [f"{_name_nodes(fabric.nodes)}: no profile fits, so this follows from their objects.", *fabric.comments]
    present = {name for name in matching.ACCELERATORS if name in fabric.nodes[0].status.capacity}
    return _Section(
        f"{name} derived", [f"    {line}" for line in fabric.lines], comments, len(fabric.nodes), sorted(present)
    )


def _name_nodes(nodes: Sequence[node_views.Node]) -> str:
    names = [node.metadata.name for node in nodes]
    return f"{text.format_count(len(names), 'node')} ({text.join_first(names, 2)})"


# --- the document -------------------------------------------------------------------------------------------


def _format_policy(sections: Sequence[_Section], gaps: Sequence[str]) -> Iterator[str]:
    named = _choose_names(sections)
    largest = max(named, key=lambda name: named[name].nodes)
    accelerators = list(dict.fromkeys(name for section in sections for name in section.accelerators))
    yield from _format_comments([_FIRST, *gaps], "")
    yield from _HEAD.splitlines()
    yield f"defaultFabric: {largest}" + ("  # that of most nodes: jobs on others name theirs" if len(named) > 1 else "")
    if accelerators:
        yield f"accelerators: [{', '.join(accelerators)}]"
    yield "fabrics:"
    for name, section in named.items():
        yield from _format_comments(section.comments, "  ")
        yield f"  {name}:"
        yield from section.lines


def _choose_names(sections: Sequence[_Section]) -> dict[str, _Section]:
    """Return the sections by the names of their fabrics, with that of the profile where two are equal."""
    fabrics = [section.name.split() for section in sections]
    counts = collections.Counter(fabric for fabric, _ in fabrics)
    return {
        fabric if counts[fabric] == 1 else f"{profile}-{fabric}": section
        for section, (fabric, profile) in zip(sections, fabrics, strict=True)
    }


def _format_comments(comments: Sequence[str], indent: str) -> Iterator[str]:
    for comment in comments:
        start = f"{indent}# "
        yield from textwrap.wrap(
            re.sub(r"\s+", " ", comment),
            _WIDTH,
            initial_indent=start,
            subsequent_indent=f"{start}  ",
            break_on_hyphens=False,
        )


def _list_gaps(cluster: Cluster, unknown: Sequence[derivation.Fabric]) -> Iterator[str]:
    if cluster.unread:
        yield f"NOT READ, because you may not list them: {', '.join(sorted(cluster.unread))}."
    for fabric in unknown:
        yield f"NO FABRIC for {_describe_unknown(fabric)}."


def _describe_unknown(fabric: derivation.Fabric) -> str:
    comments = "".join(f" ({comment})" for comment in fabric.comments)
    return f"{_name_nodes(fabric.nodes)}: no resource, slice or network means a NIC{comments}"


def _describe_nothing(cluster: Cluster, unknown: Sequence[derivation.Fabric]) -> str:
    problem = "; ".join(map(_describe_unknown, unknown[:3])) or (
        f"none of {text.format_count(len(cluster.nodes), 'node')} has an accelerator or the labels of a profile"
    )
    unread = f"; you may not list {', '.join(sorted(cluster.unread))}" if cluster.unread else ""
    return (
        f"the cluster shows no fabric: {problem}{unread}. Install the device plugin or DRA driver of the NICs, or begin"
        f" with a profile: railwright policy init --cloud NAME; {profiles.format_names()}"
    )
