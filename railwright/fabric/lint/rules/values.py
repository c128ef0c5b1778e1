"""Rules about values: numbers, words, what is around them, and choices that NCCL or the policy makes better."""

from collections.abc import Iterator, Mapping

from railwright.fabric.lint import rule_types
from railwright.fabric.nccl import catalogue, integers, lists

_READ = frozenset({"active", "deprecated", "newer", "unused"})  # status of variables that NCCL reads
# Words of these variables have rules of their own, which say more: N11, N12, N24, N33, N42.
_ELSEWHERE = frozenset(
    {
        "NCCL_ALGO",
        "NCCL_DEBUG",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_IB_ADDR_RANGE",
        "NCCL_IB_HCA",
        "NCCL_NET",
        "NCCL_OOB_NET_IFNAME",
        "NCCL_PROTO",
        "NCCL_SOCKET_IFNAME",
    }
)
_MAX_TIMEOUT = 23
_TIMEOUT_UNIT = 4.096e-6  # seconds, times two to the power of the value (InfiniBand specification, local ack timeout)
_LONGEST_TIMEOUT = 31  # beyond it the wait has no end, and the number is out of range: N09's
_RETRIES = 7  # NCCL's default
_LAST_PARTITION = 127  # index; tables of the usual HCAs have 128 entries


def _is_number(name: str) -> bool:
    row = catalogue.find(name)
    return row is not None and row.status in _READ and row.is_numeric


def _check_decimal(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    text = setting.text
    if text and not integers.is_plain(text) and not integers.is_octal(text):
        row = catalogue.get(setting.name)
        is_switch = isinstance(row.allowed, catalogue.Enumeration) and len(row.allowed.values) == 2
        fix = f"write {row.words.replace(' ', ' or ')}" if is_switch else "write decimal digits"
        yield f"is not a decimal number: {_describe_reading(text, row)}; {fix}"


def _describe_reading(text: str, row: catalogue.Variable) -> str:
    if row.parser not in catalogue.INTEGER_PARSERS:
        return "its reader expects digits"
    number, number_before = integers.parse(text), integers.parse(text, (2, 31, 2))
    if number is not integers.NoValue.DEFAULT:
        return f"NCCL takes it as {number}"
    return "it is refused" if number_before == number else "NCCL takes it as 0 up to 2.31 and refuses it from 2.32 on"


def _check_octal(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    text = setting.text
    if integers.is_octal(text):
        meant = "-" * text.startswith("-") + (text.lstrip("-0") or "0")
        reading = f"a leading zero makes it octal: NCCL takes it as {integers.parse(text)}"
        yield f"{reading}; write {rule_types.quote(meant)}"


def _check_range(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    text, row = setting.text, catalogue.get(setting.name)
    if not integers.is_plain(text) or row.allows(text):
        return
    if isinstance(row.allowed, catalogue.Enumeration):
        yield f"is out of range; it takes one of: {row.words}"
    else:
        yield f"is out of range; it takes {row.words or 'numbers of 64 bits'}"


def _is_word(name: str) -> bool:
    row = catalogue.find(name)
    return row is not None and row.status in _READ and not row.is_numeric and name not in _ELSEWHERE


def _check_word(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    text, row = setting.text, catalogue.get(setting.name)
    if text and not row.allows(text) and not row.allows(setting.value or ""):
        effect = f" ({row.on_invalid})" if row.on_invalid else ""
        yield f"NCCL does not know this word{effect}; {_suggest_word(text, row)}"


def _suggest_word(text: str, row: catalogue.Variable) -> str:
    if isinstance(row.allowed, catalogue.Enumeration):
        upper = text.upper()
        return f"write {upper}" if row.allowed.allows(upper) else f"it takes one of: {row.words}"
    return f"it must match {row.words}"


def _check_bare(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    value, text = setting.value, setting.text
    if value is None or (value and value == text) or value == catalogue.get(setting.name).default_text:
        return
    if not value:
        yield "an empty value counts as set for some names and as unset for others; omit it"
    else:
        fix = rule_types.quote(text) or "a value, or omit it"
        yield f"quotes and blanks around a value become part of it; write {fix}"


def _check_timeout(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    exponent = rule_types.parse_number(setting, ranks)
    if exponent is None or not _MAX_TIMEOUT < exponent <= _LONGEST_TIMEOUT:
        return
    if not rule_types.is_policy_value(setting, ranks):
        retries = rule_types.read_number(ranks, "NCCL_IB_RETRY_CNT")
        yield (
            f"a dead link shows after {_format_delay(exponent, _RETRIES if retries is None else retries)}; "
            "20 is NCCL's default, 22 survives route changes of large fabrics"
        )


def _format_delay(exponent: int, retries: int) -> str:
    minutes = _TIMEOUT_UNIT * 2**exponent * (min(max(retries, 0), _RETRIES) + 1) / 60
    return f"about {minutes:.0f} minutes" if minutes >= 1.5 else "more than a minute"


def _check_partition(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    number = rule_types.parse_number(setting, ranks)
    if number is not None and number > _LAST_PARTITION:
        yield (
            f"looks like the key 0x{number:x} itself, and its index in the port's table is meant; write the index "
            "(/sys/class/infiniband/NAME/ports/1/pkeys)"
        )


_WORDS: Mapping[str, tuple[str, ...]] = {"NCCL_ALGO": lists.ALGORITHMS, "NCCL_PROTO": lists.PROTOCOLS}
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
    if setting.value is None or rule_types.is_older(ranks, *lists.SINCE):
        return
    try:
        lists.parse_choice(setting.value, _WORDS[setting.name])
    except lists.InvalidChoiceError as error:
        yield f"{error}. NCCL 2.24 and newer fail at start; correct or remove it"


def _check_choice(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value != "" and not ranks.is_benchmark:  # an empty value is N11's
        effect = (
            "turns off the tuner of the EFA plugin"
            if rule_types.is_on_efa(ranks)
            else "keeps NCCL from choosing by itself"
        )
        yield f"{effect}, for every size and function; remove it outside of benchmarks"


def _check_vendor(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    fabric = ranks.fabric_context.fabric
    if fabric is not None and fabric.nccl.is_of_vendor(setting.name):
        yield "the vendor's plugin, script or settings file sets this variable on the fabric's nodes; remove it"
    if fabric is None and rule_types.is_on_efa(ranks) and setting.name in _OF_EFA_PLUGIN and setting.text != _OWN_TUNER:
        yield "the plugin of EFA has a value for each instance type, which this one replaces; remove it"


def _check_algorithms(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value or ranks.is_benchmark or rule_types.is_older(ranks, *lists.SINCE):
        return
    try:
        words_by_function = lists.parse_choice(setting.value, lists.ALGORITHMS)
    except lists.InvalidChoiceError:  # N33's
        return
    functions_without_algorithm = [
        function
        for function, words in words_by_function.items()
        if words.isdisjoint(lists.ALGORITHMS_BY_FUNCTION[function])
    ]
    if functions_without_algorithm:
        problem = f"leaves no algorithm for {', '.join(functions_without_algorithm)}, which then fail"
        yield f"{problem}; add Ring, or limit it to a function"


def _check_cross_nic(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    fabric, number = ranks.fabric_context.fabric, rule_types.parse_number(setting, ranks)
    if fabric is None or len(fabric.rails) < 2 or number is None or rule_types.is_policy_value(setting, ranks):
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
    number = rule_types.parse_number(setting, ranks)
    if ranks.accelerators < 2 or number is None or ranks.is_benchmark:
        return
    advice = f"and the container has {ranks.accelerators} accelerators; remove it outside of benchmarks"
    if setting.name == "NCCL_P2P_DISABLE" and number == 1:  # it acts on this number only (src/graph/paths.cc)
        yield f"turns NVLink and PCIe between GPUs off, {advice}"
    if setting.name == "NCCL_SHM_DISABLE" and number != 0:
        yield f"turns shared memory between ranks off, {advice}"


def _check_nvlink(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    fabric, number = ranks.fabric_context.fabric, rule_types.parse_number(setting, ranks)
    if fabric is None or fabric.nvlink is None or number != 0:
        return
    if setting.name == "NCCL_NET_GDR_C2C":
        effect = "keeps NCCL from reaching NICs over the CPU's chip-to-chip link"
    else:
        effect = "turns NVLink between nodes off"
    yield f"{effect}, and by the policy the nodes have NVLink domains; remove it"


RULES = (
    rule_types.Rule("N07", _is_number, _check_decimal),
    rule_types.Rule("N08", _is_number, _check_octal),
    rule_types.Rule("N09", _is_number, _check_range),
    rule_types.Rule("N10", _is_word, _check_word),
    rule_types.Rule("N11", lambda name: catalogue.find(name) is not None, _check_bare),
    rule_types.Rule("N49", frozenset({"NCCL_IB_TIMEOUT"}), _check_timeout),
    rule_types.Rule("N59", frozenset({"NCCL_IB_PKEY"}), _check_partition),
    rule_types.Rule("N33", frozenset(_WORDS), _check_grammar),
    rule_types.Rule("N34", frozenset(_WORDS), _check_choice),
    rule_types.Rule("N35", frozenset({"NCCL_ALGO"}), _check_algorithms),
    rule_types.Rule("N37", frozenset({"NCCL_CROSS_NIC"}), _check_cross_nic),
    rule_types.Rule("N38", frozenset({"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}), _check_local_transport),
    rule_types.Rule("N65", frozenset({"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_NET_GDR_C2C"}), _check_nvlink),
    rule_types.Rule("N66", lambda name: name.startswith(("NCCL_", "OFI_NCCL_", "FI_")), _check_vendor),
)
