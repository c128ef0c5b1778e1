"""N62 and N63: networks of plugins that the pod's own settings, devices or mounts make unreachable."""

import re
from collections.abc import Iterator

import msgspec

from railwright.fabric.lint import effective_values, rule_types, settings

_VERBS_DEVICES = "/dev/infiniband"
_EFA = "efa"


def _check_efa(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if not effective_values.is_on_efa(ctx):
        return
    plugin, provider = ctx.get_setting("NCCL_NET_PLUGIN"), ctx.get_setting("FI_PROVIDER")
    if plugin is not None and settings.strip_quotes(plugin.value or "").casefold() == "none":
        yield settings.build_violation(
            plugin, "keeps out the plugin that drives EFA, so NCCL uses TCP without a message; remove it, or write ofi"
        )
    if provider is not None and provider.value and _excludes_efa(settings.strip_quotes(provider.value)):
        yield settings.build_violation(provider, "keeps libfabric from EFA, so NCCL uses TCP; remove it, or write efa")
    if ctx.mounts.get(_VERBS_DEVICES) == "hostPath":
        yield rule_types.Violation(
            f"the container has EFA devices and mounts the node's {_VERBS_DEVICES}: on nodes that also have other RDMA "
            "devices libfabric finds no EFA, and NCCL uses TCP; remove the mount, the device plugin adds what is needed"
        )


def _excludes_efa(providers: str) -> bool:
    """True if a value of FI_PROVIDER leaves out EFA. Layered providers are written `efa;ofi_rxr`."""
    names = {name.strip() for part in providers.removeprefix("^").split(",") for name in part.split(";")}
    return (_EFA in names) == providers.startswith("^")


class _Plugin(msgspec.Struct, frozen=True):
    """A network's plugin: where vendors mount it, and words in the names of images that have it."""

    network: re.Pattern[str]  # value of NCCL_NET
    owner: str
    paths: tuple[str, ...]
    images: tuple[str, ...]


_LIBFABRIC = _Plugin(
    re.compile("(aws )?libfabric|ofi", re.IGNORECASE),
    "aws-ofi-nccl",
    ("/opt/amazon", "/opt/aws-ofi-nccl"),
    ("aws", "efa", "ofi", "nvcr.io/nvidia/"),
)
_PLUGINS = (
    _LIBFABRIC,
    _Plugin(re.compile("gib", re.IGNORECASE), "Google's gIB", ("/usr/local/gib",), ("gib",)),
    _Plugin(
        re.compile("fastrak|gpudirecttcpx.*", re.IGNORECASE),
        "Google's GPUDirect-TCPX",
        ("/usr/local/nvidia", "/usr/local/tcpx", "/usr/local/fastrak", "/usr/local/library"),
        ("tcpx", "fastrak"),
    ),
)


def _check_plugin(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting("NCCL_NET")
    if setting is None or not setting.value or ctx.image is None:
        return
    network = settings.strip_quotes(setting.value)
    plugin = next((plugin for plugin in _PLUGINS if plugin.network.fullmatch(network)), None)
    if plugin is None or _brings(ctx, plugin, ctx.image):
        return
    yield settings.build_violation(
        setting,
        f"this network is of {plugin.owner}. No volume is mounted at {plugin.paths[0]}, and the image's name does not "
        "say that it has the plugin, without which NCCL fails at start; mount it, or remove the variable",
    )


def _brings(ctx: rule_types.RankContext, plugin: _Plugin, image: str) -> bool:
    mounted = any(
        path.startswith(known) or known.startswith(f"{path}/") for path in ctx.mounts for known in plugin.paths
    )
    by_image = any(word in image.casefold() for word in plugin.images)
    is_libfabric = effective_values.is_on_efa(ctx) or not effective_values.is_unset(ctx, "FI_PROVIDER")
    return mounted or by_image or (is_libfabric and plugin is _LIBFABRIC)


RULES = (
    rule_types.Rule(
        code="N62",
        name="efa-unreachable",
        severity=rule_types.Severity.ERROR,
        title="EFA devices are requested and made unreachable",
        explanation=(
            "NCCL reaches EFA only by the plugin aws-ofi-nccl and libfabric's provider efa. NCCL_NET_PLUGIN=none, "
            "which is right on RoCE, or a list of providers without efa leaves TCP. So does the node's /dev/infiniband "
            "beside the devices of the device plugin, on nodes that have other RDMA devices too."
        ),
        source="aws/aws-ofi-nccl doc/efa-env-var.md; aws-samples/aws-do-eks issue 63; libfabric fi_provider(7)",
        check=_check_efa,
    ),
    rule_types.Rule(
        code="N63",
        name="plugin-not-mounted",
        severity=rule_types.Severity.WARNING,
        title="The network of a plugin that nothing brings",
        explanation=(
            "gIB, FasTrak and Libfabric are networks of plugins. On Google's nodes a volume brings the plugin, on AWS "
            "the image. NCCL_NET with such a name and without the plugin ends with 'network ... not found'. Reported "
            "if no volume is at the plugin's usual path and the image's name does not mention it."
        ),
        source="GoogleCloudPlatform/container-engine-accelerators gpudirect-rdma; aws/aws-ofi-nccl README",
        check=_check_plugin,
    ),
)
