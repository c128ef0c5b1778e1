"""All rows in the order in which they are looked at, and so told."""

from railwright.cli.checking import (
    admission,
    certificates,
    installation,
    kubernetes,
    pods,
    policy,
    rails,
    registrations,
    scheduling,
)
from railwright.cli.checking.model import Group

GROUPS: tuple[Group, ...] = (
    Group("kubernetes", (*kubernetes.rows(), *kubernetes.before())),
    Group("installation", tuple(installation.rows())),
    Group("certificates", tuple(certificates.rows())),
    Group("webhook configurations", tuple(registrations.rows())),
    Group("policy", tuple(policy.rows())),
    Group("nodes and rails", (*kubernetes.parts(), *rails.rows())),
    Group("admission", tuple(admission.rows())),
    Group("scheduling", tuple(scheduling.rows())),
    Group("pods", tuple(pods.rows())),
)
