"""Reads the profiles: for node shapes of a cloud a policy, the vendor's published job, and that job with one label.

A profile is a folder in `profiles`, with its source, the labels of its nodes and its differences in `profile.yaml`.
"""

import functools
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
import yaml

from railwright.cluster import documents, policies
from railwright.fabric import names
from railwright.fabric.policy import model

FOLDER: Traversable = importlib.resources.files("railwright.cli.clouds") / "profiles"
Labels = Mapping[str, Sequence[str]]  # patterns of the values, as for fnmatch, by label key
_LABEL = re.compile(rf"{re.escape(names.FABRIC)}: (\S+)")  # of the profile's job: the fabric of its shape
_ANCHOR = re.compile(r"( +)([\w-]+): &([\w-]+) ?(.*)")
_ALIAS = re.compile(r"( +)([\w-]+): \*([\w-]+)")


class Difference(msgspec.Struct, frozen=True):
    """A value of the vendor's pods that the admitted pods do not have, and the reason."""

    at: str
    reason: str


class _Variant(msgspec.Struct, frozen=True):
    """A further shape of a profile: replacements in the texts of the vendor's job and of the job with one label."""

    shape: str
    vendor: Mapping[str, str] = {}
    job: Mapping[str, str] = {}
    differences: Sequence[Difference] = ()
    labels: Labels | None = None  # None for those of the profile


class Profile(msgspec.Struct, frozen=True, dict=True):
    """A folder of `profiles`. `shape` and `labels` are those of its first shape; `variants` has the others."""

    cloud: str
    shape: str
    source: str
    fabric: str
    installs: str
    topology: str
    unverified: str
    differences: Sequence[Difference] = ()
    labels: Labels = {}
    variants: Sequence[_Variant] = ()
    name: str = ""

    def read_text(self, name: str) -> str:
        """Return the text of a file of the profile."""
        return (FOLDER / self.name / name).read_text(encoding="utf-8")

    @functools.cached_property
    def policy(self) -> model.Policy:
        """The policy, with a fabric for each shape."""
        policy = policies.read(self.read_text("policy.yaml"))
        assert isinstance(policy, model.Policy)  # noqa: S101 - it ships with the profile
        return policy


class Shape(msgspec.Struct, frozen=True, dict=True):
    """A node shape of a profile: what tells its nodes, and its jobs."""

    profile: Profile
    title: str
    labels: Labels
    differences: Sequence[Difference]
    replacements: Mapping[str, Mapping[str, str]]  # by file

    def read_text(self, name: str) -> str:
        """Return the text of vendor.yaml or job.yaml for this shape."""
        text = self.profile.read_text(name)
        for old, new in self.replacements[name].items():
            text = text.replace(old, new)
        return text

    @functools.cached_property
    def fabric_name(self) -> str:
        """The name of its fabric in the profile's policy, which the job's label has."""
        match = _LABEL.search(self.read_text("job.yaml"))
        return match[1] if match else ""

    @property
    def fabric(self) -> model.Fabric:
        """Its fabric."""
        return self.profile.policy.document.fabrics[self.fabric_name]


@functools.cache
def list_profiles() -> Sequence[Profile]:
    """Return all profiles, by name."""
    folders = sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())
    return [_read(name) for name in folders]


def find(name: str) -> Profile:
    """Return the profile with this name."""
    return next(profile for profile in list_profiles() if profile.name == name)


def format_names() -> str:
    """Return the names of all profiles by cloud."""
    by_cloud: dict[str, list[str]] = {}
    for profile in list_profiles():
        by_cloud.setdefault(profile.cloud, []).append(profile.name)
    return "; ".join(f"{cloud}: {', '.join(members)}" for cloud, members in by_cloud.items())


def list_shapes(profile: Profile) -> list[Shape]:
    """Return the shapes of a profile, first the one of its files as they are."""
    first = _Variant(profile.shape)
    return [
        Shape(
            profile=profile,
            title=variant.shape,
            labels=profile.labels if variant.labels is None else variant.labels,
            differences=(*profile.differences, *variant.differences),
            replacements={"vendor.yaml": variant.vendor, "job.yaml": variant.job},
        )
        for variant in (first, *profile.variants)
    ]


def read_fabric_text(profile: Profile, fabric: str) -> list[str]:
    """Return the lines of a fabric in the profile's policy, with its comments and without aliases of other fabrics."""
    lines = profile.read_text("policy.yaml").splitlines()
    bodies = {
        match[3]: (match[4], _read_body(lines, at))
        for at, line in enumerate(lines)
        if (match := _ANCHOR.fullmatch(line))
    }
    block: list[str] = []
    start = next(at for at, line in enumerate(lines) if re.match(rf"  {re.escape(fabric)}:(\s|$)", line))
    for line in [lines[start], *_read_body(lines, start)]:
        match = _ANCHOR.fullmatch(line) or _ALIAS.fullmatch(line)
        if match is None:
            block.append(line)
            continue
        rest, body = bodies[match[3]]
        block.append(f"{match[1]}{match[2]}: {rest}".rstrip())
        block += body if _ALIAS.fullmatch(line) else []
    return block


def read_shapes_text(profile: Profile) -> list[str]:
    """Return the items of nodeShapes in the profile's policy, with their comments."""
    lines = profile.read_text("policy.yaml").splitlines()
    return _read_body(lines, lines.index("nodeShapes:")) if "nodeShapes:" in lines else []


def _read_body(lines: Sequence[str], at: int) -> list[str]:
    """Return the lines below the key in a line: those with a larger indentation, and the items of its list."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    body: list[str] = []
    for line in lines[at + 1 :]:
        deeper = len(line) - len(line.lstrip())
        if not line or deeper < indent or (deeper == indent and not line.startswith("- ", indent)):
            break
        body.append(line)
    return body


def _read(name: str) -> Profile:
    text = (FOLDER / name / "profile.yaml").read_text(encoding="utf-8")
    tree: Any = yaml.load(text, Loader=documents.LOADER)  # noqa: S506 - a safe one
    return msgspec.convert({**tree, "name": name}, Profile)
