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
    rule_types.Rule("N07", _is_number, _check_decimal),
    rule_types.Rule("N08", _is_number, _check_octal),
    rule_types.Rule("N09", _is_number, _check_range),
    rule_types.Rule("N10", _is_word, _check_word),
    rule_types.Rule("N11", lambda name: catalogue.find(name) is not None, _check_bare),
    rule_types.Rule("N49", frozenset({"NCCL_IB_TIMEOUT"}), _check_timeout),
    rule_types.Rule("N59", frozenset({"NCCL_IB_PKEY"}), _check_partition),
)
