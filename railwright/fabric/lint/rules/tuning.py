"""Rules about choices that NCCL makes better itself, or that the policy makes: algorithms, protocols, transports."""

from collections.abc import Iterator, Mapping

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import algo_proto

_WORDS: Mapping[str, tuple[str, ...]] = {"NCCL_ALGO": algo_proto.ALGORITHMS, "NCCL_PROTO": algo_proto.PROTOCOLS}
_SAME_NIC = 0


def _check_grammar(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value is None or settings.is_older(ranks, *algo_proto.SINCE):
        return
    try:
        algo_proto.parse(setting.value, _WORDS[setting.name])
    except algo_proto.InvalidChoiceError as error:
        yield f"{error}. NCCL 2.24 and newer fail at start; correct or remove it"


def _check_choice(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value != "":  # an empty value is N11's
        effect = (
            "turns off the tuner of the EFA plugin"
            if settings.is_on_efa(ranks)
            else "keeps NCCL from choosing by itself"
        )
        yield f"{effect}, for every size and function; remove it outside of benchmarks"


def _check_algorithms(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value or settings.is_older(ranks, *algo_proto.SINCE):
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
    if ranks.accelerators < 2 or number is None:
        return
    advice = f"and the container has {ranks.accelerators} accelerators; remove it outside of benchmarks"
    if setting.name == "NCCL_P2P_DISABLE" and number == 1:  # it acts on this number only (src/graph/paths.cc)
        yield f"turns NVLink and PCIe between GPUs off, {advice}"
    if setting.name == "NCCL_SHM_DISABLE" and number != 0:
        yield f"turns shared memory between ranks off, {advice}"


RULES = (
    rule_types.Rule(
        code="N33",
        name="unreadable-choice",
        severity=rule_types.Severity.ERROR,
        title="NCCL_ALGO or NCCL_PROTO does not follow the grammar",
        explanation=(
            "Entries are separated by semicolons. Each is a list, or a function, a colon and a list; only the first "
            "may lack its function. A leading ^ inverts a list. Letter case does not matter, blanks do. An unknown "
            "word or function fails at start since 2.24; older releases ignore it, and are not reported."
        ),
        source="NVIDIA/nccl src/graph/tuning.cc",
        variables=frozenset(_WORDS),
        check_setting=_check_grammar,
    ),
    rule_types.Rule(
        code="N34",
        name="choice-blocks-tuning",
        severity=rule_types.Severity.WARNING,
        title="NCCL_ALGO or NCCL_PROTO overrides NCCL's own choice",
        explanation=(
            "NCCL chooses algorithm and protocol for each function and size by the hardware. A fixed choice becomes "
            "outdated, LL128 can corrupt data on machines that do not support it, and on EFA either variable turns off "
            "the vendor's tuner."
        ),
        source="NVIDIA/nccl user guide, NCCL_ALGO and NCCL_PROTO; aws-ofi-nccl doc/efa-env-var.md",
        variables=frozenset(_WORDS),
        check_setting=_check_choice,
    ),
    rule_types.Rule(
        code="N35",
        name="no-algorithm-left",
        severity=rule_types.Severity.WARNING,
        title="NCCL_ALGO leaves a function without an algorithm",
        explanation=(
            "Broadcast and Reduce exist with Ring only, AllGather and ReduceScatter with Ring, PAT, NVLS and "
            "CollNetDirect, AllReduce with all but PAT. A list for all functions that lacks Ring leaves some without "
            "an algorithm, and their first call fails. Releases before 2.24 keep Ring for them."
        ),
        source="NVIDIA/nccl src/graph/tuning.cc; user guide, NCCL_ALGO",
        variables=frozenset({"NCCL_ALGO"}),
        check_setting=_check_algorithms,
    ),
    rule_types.Rule(
        code="N37",
        name="cross-nic-against-policy",
        severity=rule_types.Severity.WARNING,
        title="NCCL_CROSS_NIC differs from the fabric's policy",
        explanation=(
            "NCCL cannot see whether rails can reach each other; railOnly in the policy states it. If they cannot, 1 "
            "and 2 let a ring leave a node on another rail than it arrived on, and connections time out. If they can, "
            "0 limits the bandwidth."
        ),
        source="NVIDIA/nccl src/graph/search.cc; user guide, NCCL_CROSS_NIC",
        variables=frozenset({"NCCL_CROSS_NIC"}),
        check_setting=_check_cross_nic,
    ),
    rule_types.Rule(
        code="N38",
        name="local-transport-off",
        severity=rule_types.Severity.WARNING,
        title="GPUs of one container cannot use NVLink or shared memory",
        explanation=(
            "These variables force traffic onto the network, to measure it, and are often copied from benchmarks into "
            "training manifests. With several GPUs in a container, traffic then uses the NICs instead of NVLink or "
            "shared memory. With one GPU per pod they change nothing and are not reported."
        ),
        source="NVIDIA/nccl src/graph/paths.cc; kubernetes-sigs/dranet examples",
        variables=frozenset({"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}),
        check_setting=_check_local_transport,
    ),
)
