"""Rules about names and values of variables: unknown names, wrong numbers and words, choices left to NCCL."""

import contextlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping

from railwright.fabric.lint.rule_types import WITHOUT_GIDS, RankContext, Setting, Severity, quote, rule
from railwright.fabric.nccl import catalogue, parsing

# --- names ------------------------------------------------------------------------------------------


def _is_unknown_name(name: str) -> bool:
    return name[: len(catalogue.PREFIX)].upper() == catalogue.PREFIX and catalogue.find_variable(name) is None


def _match_status(*statuses: catalogue.Status) -> Callable[[str], bool]:
    """Return a function that is true for the name of a variable with one of these statuses in the catalogue."""
    return lambda name: (row := catalogue.find_variable(name)) is not None and row.status in statuses


@rule("N01", Severity.WARNING, settings=_is_unknown_name)
def check_unknown_name(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """The name is unknown to NCCL.

    NCCL silently ignores names that it does not know, such as a misspelt variable. The name is in none of the 62
    releases from 2.3.5 to 2.30.7, in none of the later binaries, and in no known plugin or framework. Not reported for
    a name that a script in the manifest reads itself, such as $NCCL_MIN_BUSBW, or may read, because the container runs
    a script of a ConfigMap.

    Source: NVIDIA/nccl src/misc/param.cc; the catalogue of names.
    """
    if setting.name not in ranks.own_names and not ranks.has_hidden_names:
        yield f"NCCL has no variable of this name and ignores it; {_suggest_name(setting.name)}"


def _suggest_name(name: str) -> str:
    if catalogue.find_variable(name.upper()) is not None:
        return f"write {name.upper()} in upper case"
    near = catalogue.suggest_name(name)
    return f"did you mean {near}?" if near else "remove it, or correct its spelling"


@rule("N02", Severity.WARNING, settings=_match_status("removed", "newer", "unknown", "framework"))
def check_nccl_release(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """NCCL never read the variable, no longer reads it, or reads it only in its newest releases.

    NCCL silently ignores all three. Guides for NCCL 2.3 still recommend NCCL_IB_GDR_LEVEL, which became
    NCCL_NET_GDR_LEVEL in 2.4. Other names are copied from guide to guide and were never NCCL's; some are PyTorch's,
    whose process group reads them with the prefix TORCH_, and newer releases drop the old form. Names newer than 2.30
    are reported, because most images have an older release.

    Source: release tags of NVIDIA/nccl; later names: strings of the nvidia-nccl packages 2.31.2 and 2.32.3; for example
    the queue pair count in oracle-quickstart/oci-hpc-oke; PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp.
    """
    row = catalogue.get_variable(setting.name)
    if row.status == "removed":
        when = f"after {row.last_seen}" if row.last_seen else "any more"
        advice = f"use {row.deprecated_by}" if row.deprecated_by else "remove it: there is no replacement"
        yield f"NCCL does not read this variable {when}; {advice}"
    elif row.status == "framework":
        yield f"PyTorch has renamed this variable, and NCCL never read it; use {row.deprecated_by}"
    elif row.status == "unknown" and setting.name not in ranks.own_names:
        advice = f"use {row.deprecated_by}" if row.deprecated_by else "remove it"
        yield f"no release of NCCL ever read this variable; {advice}"
    elif row.status == "newer":
        yield (
            f"only NCCL {row.introduced} and newer read this variable, and most images have an older NCCL; update "
            "NCCL in the image, or remove the variable"
        )


# --- values -----------------------------------------------------------------------------------------

_READ = frozenset({"active", "deprecated", "newer", "unused"})  # status of variables that NCCL reads
# Words of these variables have their own rules: N11, N12, N31, N34.
_CHECKED_BY_OTHER_RULES = frozenset(
    {"NCCL_ALGO", "NCCL_IB_HCA", "NCCL_NET", "NCCL_OOB_NET_IFNAME", "NCCL_PROTO", "NCCL_SOCKET_IFNAME"}
)


def _is_checked(name: str, *, numbers: bool) -> bool:
    """True if the rule for numbers (`numbers`) or the rule for words (not `numbers`) checks the variable.

    The rule for words leaves out the variables that have a rule of their own.
    """
    row = catalogue.find_variable(name)
    is_read = row is not None and row.status in _READ and row.is_numeric == numbers
    return is_read and (numbers or name not in _CHECKED_BY_OTHER_RULES)


@rule("N09", Severity.ERROR, settings=lambda name: _is_checked(name, numbers=True))
def check_number(setting: Setting, _: RankContext) -> Iterator[str]:
    """The value is not the number that NCCL reads.

    NCCL reads numbers with strtoll: text without digits becomes 0 up to 2.31.2 and keeps the default in 2.32.3, and
    text after the digits is dropped. NCCL_IB_DISABLE=true disables nothing in any release. A leading zero makes the
    number octal: 010 is 8, and 08 is 0 because 8 is not an octal digit. NCCL checks few ranges: timeouts, retry counts,
    queue pair counts and service levels go to the driver or to fixed arrays unchanged. NCCL_IB_RETRY_CNT is a field of
    3 bits, so 15, which some manifests use, has the effect of 7. NCCL_IB_TIMEOUT=0 or 32 waits forever.

    Source: NVIDIA/nccl src/misc/param.cc, src/transport/net_ib/connect.cc and user guide; NVIDIA/nccl issue 1814;
    observed on 2.27.7 to 2.32.3.
    """
    text, row = setting.text, catalogue.get_variable(setting.name)
    if text and not parsing.is_unambiguous(text):
        is_switch = isinstance(row.allowed, catalogue.Enumeration) and len(row.allowed.values) == 2
        fix = f"write {row.words.replace(' ', ' or ')}" if is_switch else "write decimal digits without a leading zero"
        number = parsing.parse_number(text)
        effect = "NCCL takes it as 0, or ignores it from 2.32 on" if number is None else f"NCCL takes it as {number}"
        if row.parser not in catalogue.INTEGER_PARSERS:
            effect = "NCCL expects digits"
        yield f"is not a plain decimal number: {effect}; {fix}"
    elif text and not row.allows(text):
        words = f"one of: {row.words}" if isinstance(row.allowed, catalogue.Enumeration) else row.words
        yield f"is out of range; it takes {words or 'numbers of 64 bits'}"


@rule("N10", Severity.ERROR, settings=lambda name: _is_checked(name, numbers=False))
def check_word(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """The value is not among the variable's allowed words.

    NCCL ignores an unknown word without a message; only the usual log line is missing. Distances (NCCL_NET_GDR_LEVEL,
    NCCL_P2P_LEVEL), address families and NCCL_NET_MERGE_LEVEL are case sensitive. NCCL_IB_ADDR_RANGE is one prefix in
    CIDR form of the family NCCL_IB_ADDR_FAMILY (default AF_INET): NCCL ignores other text, and with one of the wrong
    family every HCA uses GID 0, which is link-local. An unknown NCCL_DEBUG disables all messages, also errors; one
    unknown word in NCCL_DEBUG_SUBSYS drops the whole list.

    Source: NVIDIA/nccl src/graph/paths.cc, src/graph/topo.cc, src/misc/socket.cc, src/transport/net_ib/connect.cc and
    src/debug.cc, observed on 2.30.7.
    """
    text, row = setting.text, catalogue.get_variable(setting.name)
    find_problems = _GRAMMARS.get(setting.name)
    if find_problems is not None:
        yield from find_problems(text, ranks) if text else ()
    elif text and not row.allows(text) and not row.allows(setting.value or ""):
        effect = f" ({row.on_invalid})" if row.on_invalid else ""
        fix = f"write a value that matches {row.words}"
        if isinstance(row.allowed, catalogue.Enumeration):
            fix = f"write {text.upper()}" if row.allowed.allows(text.upper()) else f"write one of: {row.words}"
        yield f"NCCL does not accept this word{effect}; {fix}"


_SUBSYSTEMS = (
    *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "PROXY", "NVLS"),
    *("BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL"),
)
_FAMILY = "NCCL_IB_ADDR_FAMILY"
_FAMILIES = {4: "AF_INET", 6: "AF_INET6"}


def _check_subsystems(text: str, _: RankContext) -> Iterator[str]:
    words = text.removeprefix("^").split(",")
    unknown = [quote(word) or "an empty word" for word in words if word.upper() not in _SUBSYSTEMS]
    if unknown:
        yield f"{', '.join(unknown[:4])}: NCCL has no such subsystem and drops the whole list; correct it"


def _parse_address_prefix(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    _, slash, bits = text.partition("/")
    if slash and bits.isascii() and bits.isdigit() and "%" not in text:
        with contextlib.suppress(ValueError):
            return ipaddress.ip_network(text, strict=False)
    return None


def _check_address_range(text: str, ranks: RankContext) -> Iterator[str]:
    if ranks.fabric_context.transport in WITHOUT_GIDS or ranks.is_on_efa:
        return
    network = _parse_address_prefix(text)
    family = ranks.get_setting(_FAMILY)
    looked_for = 6 if family is not None and family.value == _FAMILIES[6] else 4  # unknown words mean AF_INET
    if network is None:
        yield "is not an address prefix, so NCCL ignores it; write one, such as 192.168.0.0/16 or fd00::/8"
    elif network.version != looked_for and (family is None or family.value is not None):
        yield (
            f"NCCL looks for addresses of {_FAMILIES[looked_for]}, so no GID matches this prefix and every HCA uses "
            f"entry 0; set {_FAMILY}={_FAMILIES[network.version]}"
        )


_GRAMMARS: Mapping[str, Callable[[str, RankContext], Iterator[str]]] = {
    "NCCL_DEBUG_SUBSYS": _check_subsystems,
    "NCCL_IB_ADDR_RANGE": _check_address_range,
}


_PREFIXES = ("GLOO_", "NVSHMEM_", "TP_SOCKET_", "UCX_")  # variables of other libraries


@rule(
    "N11", Severity.ERROR, settings=lambda name: name.startswith(_PREFIXES) or catalogue.find_variable(name) is not None
)
def check_quotes_and_blanks(setting: Setting, _: RankContext) -> Iterator[str]:
    """The value is empty, or has quotes or blanks around it.

    Neither Kubernetes nor nccl.conf strips quotes or blanks: a quoted interface name matches nothing, and NCCL does not
    start. An empty value counts as unset for numbers and as set for NCCL_NET, which then matches no network. In YAML,
    "'eth0'" keeps its inner quotes.

    Source: NVIDIA/nccl src/misc/param.cc, observed.
    """
    value, text, row = setting.value, setting.text, catalogue.find_variable(setting.name)
    if value is None or (value and value == text) or (row is not None and value == row.default_text):
        return
    if not value:
        yield "an empty value counts as set for some variables and as unset for others; omit the variable"
    else:
        yield f"quotes and blanks around a value become part of it; write {quote(text) or 'a value, or omit it'}"


@rule("N34", Severity.WARNING, settings=frozenset({"NCCL_ALGO", "NCCL_PROTO"}))
def check_fixed_algorithm(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """NCCL_ALGO or NCCL_PROTO overrides NCCL's own choice.

    NCCL chooses algorithm and protocol for each function and size by the hardware. A fixed choice becomes outdated,
    LL128 can corrupt data on machines that do not support it, and on EFA either variable turns off the vendor's tuner.
    Benchmarks of nccl-tests are not reported.

    Source: NVIDIA/nccl user guide, NCCL_ALGO and NCCL_PROTO; aws-ofi-nccl doc/efa-env-var.md.
    """
    if setting.value != "" and not ranks.is_benchmark:  # an empty value is N11's
        choice = "algorithm" if setting.name == "NCCL_ALGO" else "protocol"
        effect = ", although NCCL" if not ranks.is_on_efa else " and turns off the tuner of the EFA plugin, which"
        yield (
            f"restricts the {choice}{effect} chooses the best {choice} for each operation and message size; remove the "
            "variable outside of benchmarks"
        )


# What the plugin sets by instance type unless the pod does (aws/aws-ofi-nccl src/platform-aws.cpp)
_EFA_PLUGIN_VARIABLES = (
    *("NCCL_BUFFSIZE", "NCCL_NETDEVS_POLICY", "NCCL_NET_FORCE_FLUSH", "NCCL_NVLSTREE_MAX_CHUNKSIZE"),
    *("NCCL_NVLS_CHUNKSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_TOPO_FILE", "NCCL_TUNER_PLUGIN"),
)
_OWN_TUNER = "ofi"  # NCCL_TUNER_PLUGIN with the name of the plugin selects the plugin's own tuner


@rule("N66", Severity.WARNING, settings=lambda name: name.startswith(("NCCL_", "OFI_NCCL_", "FI_")))
def check_vendor_variable(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """A container sets a variable that the vendor sets on the nodes.

    The policy leaves the variable to a network plugin, a script or a settings file, which has values for each instance
    type. A value of the container replaces theirs, and a stale one costs bandwidth; Google's checker of guest
    configurations rejects it. Without a policy, the variables that the EFA plugin sets are reported in containers with
    EFA devices.

    Source: AWS and Google removed such values from their manifests (awslabs/awsome-distributed-ai pull request 1077,
    NVIDIA/aicr issue 422).
    """
    fabric = ranks.fabric_context.fabric
    if fabric is not None and fabric.nccl.is_set_by_vendor(setting.name):
        yield "the vendor's plugin, script or settings file sets this variable on the fabric's nodes; remove it here"
    if fabric is None and ranks.is_on_efa and setting.name in _EFA_PLUGIN_VARIABLES and setting.text != _OWN_TUNER:
        yield "the EFA plugin has its own value for each instance type, which this value replaces; remove the variable"
