"""Rules about choices that NCCL makes better itself, or that the policy makes: algorithms, protocols, transports."""

from collections.abc import Iterator, Mapping

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import algo_proto

_WORDS: Mapping[str, tuple[str, ...]] = {"NCCL_ALGO": algo_proto.ALGORITHMS, "NCCL_PROTO": algo_proto.PROTOCOLS}
_SAME_NIC = 0
# What the plugin sets by instance type unless the pod does (aws/aws-ofi-nccl src/platform-aws.cpp)
_OF_EFA_PLUGIN = frozenset(
    {
        "NCCL_BUFFSIZE",
        "NCCL_NETDEVS_POLICY",
        "NCCL_NET_FORCE_FLUSH",
        "NCCL_NVLSTREE_MAX_CHUNKSIZE",
        "NCCL_NVLS_CHUNKSIZE",
        "NCCL_P2P_NET_CHUNKSIZE",
        "NCCL_TOPO_FILE",
        "NCCL_TUNER_PLUGIN",
    }
)
_OWN_TUNER = "ofi"  # NCCL_TUNER_PLUGIN with the name of the plugin selects the plugin's own tuner


def _check_grammar(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value is None or settings.is_older(ranks, *algo_proto.SINCE):
        return
    try:
        algo_proto.parse(setting.value, _WORDS[setting.name])
    except algo_proto.InvalidChoiceError as error:
        yield f"{error}. NCCL 2.24 and newer fail at start; correct or remove it"


def _check_choice(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value != "" and not ranks.is_benchmark:  # an empty value is N11's
        effect = (
            "turns off the tuner of the EFA plugin"
            if settings.is_on_efa(ranks)
            else "keeps NCCL from choosing by itself"
        )
        yield f"{effect}, for every size and function; remove it outside of benchmarks"


def _may_be_of_vendor(variable: str) -> bool:
    return variable.startswith(("NCCL_", "OFI_NCCL_", "FI_"))


def _check_vendor(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    fabric = ranks.fabric_context.fabric
    if fabric is not None and fabric.nccl.is_of_vendor(setting.name):
        yield "the vendor's plugin, script or settings file sets this variable on the fabric's nodes; remove it"
    if fabric is None and settings.is_on_efa(ranks) and setting.name in _OF_EFA_PLUGIN and setting.text != _OWN_TUNER:
        yield "the plugin of EFA has a value for each instance type, which this one replaces; remove it"


def _check_algorithms(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value or ranks.is_benchmark or settings.is_older(ranks, *algo_proto.SINCE):
        return
    try:
        words_by_function = algo_proto.parse(setting.value, algo_proto.ALGORITHMS)
    except algo_proto.InvalidChoiceError:  # N33's
        return
    functions_without_algorithm = [
        function
        for function, words in words_by_function.items()
        if words.isdisjoint(algo_proto.ALGORITHMS_BY_FUNCTION[function])
    ]
    if functions_without_algorithm:
        problem = f"leaves no algorithm for {', '.join(functions_without_algorithm)}, which then fail"
        yield f"{problem}; add Ring, or limit it to a function"


def _check_cross_nic(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    fabric, number = ranks.fabric_context.fabric, settings.parse_number(setting, ranks)
    if fabric is None or len(fabric.rails) < 2 or number is None or settings.is_policy_value(setting, ranks):
        return
    if fabric.nccl.rail_only and number != _SAME_NIC:
        yield (
            "lets NCCL cross rails, and the policy says that they do not reach each other (railOnly); "
            "write 0 or remove it"
        )
    elif not fabric.nccl.rail_only and number == _SAME_NIC:
        yield (
            "keeps NCCL from crossing rails, and in the policy they reach each other, so it may cost "
            "bandwidth; remove it, or have the policy say railOnly"
        )


def _check_local_transport(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    number = settings.parse_number(setting, ranks)
    if ranks.accelerators < 2 or number is None or ranks.is_benchmark:
        return
    advice = f"and the container has {ranks.accelerators} accelerators; remove it outside of benchmarks"
    if setting.name == "NCCL_P2P_DISABLE" and number == 1:  # it acts on this number only (src/graph/paths.cc)
        yield f"turns NVLink and PCIe between GPUs off, {advice}"
    if setting.name == "NCCL_SHM_DISABLE" and number != 0:
        yield f"turns shared memory between ranks off, {advice}"


def _check_nvlink(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    fabric, number = ranks.fabric_context.fabric, settings.parse_number(setting, ranks)
    if fabric is None or fabric.nvlink is None or number != 0:
        return
    if setting.name == "NCCL_NET_GDR_C2C":
        effect = "keeps NCCL from reaching NICs over the CPU's chip-to-chip link"
    else:
        effect = "turns NVLink between nodes off"
    yield f"{effect}, and by the policy the nodes have NVLink domains; remove it"


RULES = (
    rule_types.Rule("N33", frozenset(_WORDS), _check_grammar),
    rule_types.Rule("N34", frozenset(_WORDS), _check_choice),
    rule_types.Rule("N35", frozenset({"NCCL_ALGO"}), _check_algorithms),
    rule_types.Rule("N37", frozenset({"NCCL_CROSS_NIC"}), _check_cross_nic),
    rule_types.Rule("N38", frozenset({"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}), _check_local_transport),
    rule_types.Rule("N65", frozenset({"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_NET_GDR_C2C"}), _check_nvlink),
    rule_types.Rule("N66", _may_be_of_vendor, _check_vendor),
)
