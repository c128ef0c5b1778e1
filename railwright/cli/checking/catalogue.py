"""Lists all checks in the order in which they run and are printed."""

from railwright.cli.checking import (
    admission,
    certificates,
    installation,
    kubernetes,
    pods,
    policy,
    rails,
    scheduling,
    webhook_configurations,
)
from railwright.cli.checking.model import Group

GROUPS: tuple[Group, ...] = (
    Group("kubernetes", (*kubernetes.list_rows(), *kubernetes.list_pre_rows())),
    Group("installation", tuple(installation.list_rows())),
    Group("certificates", tuple(certificates.list_rows())),
    Group("webhook configurations", tuple(webhook_configurations.list_rows())),
    Group("policy", tuple(policy.list_rows())),
    Group("nodes and rails", (*kubernetes.list_dependency_rows(), *rails.list_rows())),
    Group("admission", tuple(admission.list_rows())),
    Group("scheduling", tuple(scheduling.list_rows())),
    Group("pods", tuple(pods.list_rows())),
)
