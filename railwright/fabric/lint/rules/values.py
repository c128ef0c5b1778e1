"""Rules about values by themselves: numbers, words, and what is around them."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue, integers

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
        yield f"{reading}; write {settings.quote(meant)}"


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
        fix = settings.quote(text) or "a value, or omit it"
        yield f"quotes and blanks around a value become part of it; write {fix}"


def _check_timeout(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    exponent = settings.parse_number(setting, ranks)
    if exponent is None or not _MAX_TIMEOUT < exponent <= _LONGEST_TIMEOUT:
        return
    if not settings.is_policy_value(setting, ranks):
        retries = settings.read_number(ranks, "NCCL_IB_RETRY_CNT")
        yield (
            f"a dead link shows after {_format_delay(exponent, _RETRIES if retries is None else retries)}; "
            "20 is NCCL's default, 22 survives route changes of large fabrics"
        )


def _format_delay(exponent: int, retries: int) -> str:
    minutes = _TIMEOUT_UNIT * 2**exponent * (min(max(retries, 0), _RETRIES) + 1) / 60
    return f"about {minutes:.0f} minutes" if minutes >= 1.5 else "more than a minute"


def _check_partition(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    number = settings.parse_number(setting, ranks)
    if number is not None and number > _LAST_PARTITION:
        yield (
            f"looks like the key 0x{number:x} itself, and its index in the port's table is meant; write the index "
            "(/sys/class/infiniband/NAME/ports/1/pkeys)"
        )


RULES = (
    rule_types.Rule(
        code="N07",
        name="not-a-number",
        severity=rule_types.Severity.ERROR,
        title="A number is not written in decimal digits",
        explanation=(
            "NCCL reads numbers with strtoll: text without digits becomes 0 up to 2.31.2 and keeps the default in "
            "2.32.3, and text after the digits is dropped. NCCL_IB_DISABLE=true disables nothing in any release, and "
            "NCCL_IB_MERGE_NICS=false changes its meaning with 2.32."
        ),
        source="NVIDIA/nccl src/misc/param.cc, observed on 2.27.7, 2.30.7, 2.31.2 and 2.32.3",
        variables=_is_number,
        check_setting=_check_decimal,
    ),
    rule_types.Rule(
        code="N08",
        name="octal-number",
        severity=rule_types.Severity.ERROR,
        title="A leading zero makes the number octal",
        explanation="NCCL determines the base as C does: 010 is 8, and 08 is 0 because 8 is not an octal digit.",
        source="NVIDIA/nccl src/misc/param.cc, observed on 2.27.7 to 2.32.3",
        variables=_is_number,
        check_setting=_check_octal,
    ),
    rule_types.Rule(
        code="N09",
        name="out-of-range",
        severity=rule_types.Severity.ERROR,
        title="The number is outside the variable's range",
        explanation=(
            "NCCL checks few numbers: timeouts, retry counts, queue pair counts and service levels go to the driver or "
            "to fixed arrays unchanged. NCCL_IB_RETRY_CNT is a field of 3 bits, so 15, which some manifests use, has "
            "the effect of 7. NCCL_IB_TIMEOUT=0 or 32 waits forever."
        ),
        source="NVIDIA/nccl user guide and src/transport/net_ib/connect.cc; NVIDIA/nccl issue 1814",
        variables=_is_number,
        check_setting=_check_range,
    ),
    rule_types.Rule(
        code="N10",
        name="unknown-word",
        severity=rule_types.Severity.ERROR,
        title="The word is not one the variable takes",
        explanation=(
            "NCCL ignores an unknown word without a message; only the usual log line is missing. Distances "
            "(NCCL_NET_GDR_LEVEL, NCCL_P2P_LEVEL), address families and NCCL_NET_MERGE_LEVEL are case sensitive. An "
            "unknown NCCL_NET_MERGE_LEVEL means LOC."
        ),
        source="NVIDIA/nccl src/graph/paths.cc, src/graph/topo.cc, src/misc/socket.cc",
        variables=_is_word,
        check_setting=_check_word,
    ),
    rule_types.Rule(
        code="N11",
        name="empty-or-quoted",
        severity=rule_types.Severity.ERROR,
        title="An empty value, or quotes or blanks around one",
        explanation=(
            "Neither Kubernetes nor nccl.conf strips quotes or blanks: a quoted interface name matches nothing, and "
            "NCCL does not start. An empty value counts as unset for numbers and as set for NCCL_NET, which then "
            "matches no network. In YAML, \"'eth0'\" keeps its inner quotes."
        ),
        source="NVIDIA/nccl src/misc/param.cc, observed",
        variables=lambda name: catalogue.find(name) is not None,
        check_setting=_check_bare,
    ),
    rule_types.Rule(
        code="N49",
        name="slow-failure",
        severity=rule_types.Severity.WARNING,
        title="A dead link is detected after many minutes",
        explanation=(
            "The timeout of one attempt is 4.096 microseconds times two to the power of NCCL_IB_TIMEOUT, and a link "
            "counts as dead after 7 more attempts: 34 seconds at 20, 137 at 22, nine minutes at 24, doubling with each "
            "step. All GPUs of the job wait. The value of timeout in the policy is not reported."
        ),
        source="NVIDIA/nccl src/transport/net_ib/connect.cc; NVIDIA/nccl issue 902",
        variables=frozenset({"NCCL_IB_TIMEOUT"}),
        check_setting=_check_timeout,
    ),
    rule_types.Rule(
        code="N59",
        name="partition-key",
        severity=rule_types.Severity.WARNING,
        title="NCCL_IB_PKEY looks like a key, not an index",
        explanation=(
            "The variable is an index into the partition table of the port, which differs from port to port. A key, "
            "such as 0x8001 or 32769, is outside of the table, and the queue pair cannot be created."
        ),
        source="NVIDIA/nccl src/transport/net_ib/connect.cc",
        variables=frozenset({"NCCL_IB_PKEY"}),
        check_setting=_check_partition,
    ),
)
