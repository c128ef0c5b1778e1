"""Reads the profiles of clouds: a policy for a cloud's node shapes, and the published job from which its values come.

A profile is a folder in `profiles`. Its policy has a fabric for each node shape in `profile.yaml`.
"""

import functools
import importlib.resources
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
import yaml

from railwright.cluster import documents, policies
from railwright.fabric.policy import model

_FOLDER: Traversable = importlib.resources.files("railwright.cli.clouds") / "profiles"


class Shape(msgspec.Struct, frozen=True):
    """A node shape of a cloud, and the name of its fabric in the policy.

    `instances` are the instance types of its nodes. A shape without any is recognized by `label`, which all nodes of
    the cloud have, and by the devices and networks of its fabric.
    """

    fabric: str
    title: str
    instances: Sequence[str] = ()
    label: str = ""


class Profile(msgspec.Struct, frozen=True, dict=True):
    """The profile of a cloud. `network` describes the cloud's network, `source` names the job with the values."""

    cloud: str
    source: str
    network: str
    installs: str
    topology: str
    unverified: str
    shapes: Sequence[Shape]
    name: str = ""

    @functools.cached_property
    def text(self) -> str:
        """The YAML of the profile's policy."""
        return (_FOLDER / self.name / "policy.yaml").read_text(encoding="utf-8")

    @functools.cached_property
    def policy(self) -> model.Policy:
        """The policy that `text` contains."""
        policy = policies.read(self.text)
        assert isinstance(policy, model.Policy)  # noqa: S101 - it ships with the profile
        return policy

    def describe(self) -> list[str]:
        """Return sentences on where the values come from, what the site installs, and which values are not verified."""
        return [
            f"The values are those of {self.source}.",
            f"The site installs {self.installs}.",
            f"Not verified: {self.unverified}.",
        ]


@functools.cache
def list_profiles() -> Sequence[Profile]:
    """Return the profiles of all clouds, sorted by name."""
    profiles = []
    for name in sorted(folder.name for folder in _FOLDER.iterdir() if folder.is_dir()):
        text = (_FOLDER / name / "profile.yaml").read_text(encoding="utf-8")
        tree: Any = yaml.load(text, Loader=documents.LOADER)  # noqa: S506 - a safe one
        profiles.append(msgspec.convert({**tree, "name": name}, Profile))
    return profiles


def find_profile(name: str) -> Profile:
    """Return the profile with this name, which must exist."""
    return next(profile for profile in list_profiles() if profile.name == name)


def format_profiles() -> str:
    """Return a line for each profile: its name, cloud and network."""
    width = max(len(profile.name) for profile in list_profiles())
    return "\n".join(f"  {profile.name:<{width}}  {profile.cloud}: {profile.network}" for profile in list_profiles())
