"""Values of Multus's annotation that are valid, or nearly, for property tests and for what Multus was asked."""

import json

from hypothesis import strategies as st

ODD = ["", "A", "a.b", "-a", "a-", "a_b", "a b", "\u00e9", "a\x1c", "a/b", "a@b"]
LABELS = st.sampled_from(["a", "b", "lan2", "0x", "team", "prod", "a-b"])
NAMES = st.one_of(*[LABELS] * 9, st.sampled_from(ODD))
INTERFACES = st.one_of(
    *[st.sampled_from(["net1", "rail0", "x", "fifteen-is-okay", "\u00e9" * 7])] * 5,
    st.sampled_from(["sixteen-is-toobi", "\u00e9" * 8, "a:b", "a b", "a\xa0b", "a%b", "..", "a,b"]),
)
SPACE = st.one_of(*[st.sampled_from(["", " ", "\t", "\n ", "\u2003", "\x85"])] * 9, st.sampled_from(["\x1f", "\u200b"]))
RARELY_ODD_TEXT = st.text(alphabet='ab/@,[]{}":. \\n0-', max_size=20)


@st.composite
def items(draw) -> str:
    parts = [draw(NAMES)]
    if draw(st.booleans()):
        parts = [draw(NAMES), "/", *parts]
    if draw(st.booleans()):
        parts += ["@", draw(INTERFACES)]
    if draw(st.integers(0, 9)) == 0:
        parts.append(draw(st.sampled_from(["/", "@", "/a", "@b", ","])))
    return "".join(draw(SPACE) + part + draw(SPACE) for part in parts)


LISTS = st.lists(items(), min_size=1, max_size=4).map(",".join)


class Raw(str):
    """JSON text that is inserted into the value unchanged."""

    __slots__ = ()


ADDRESSES = st.one_of(
    *[st.sampled_from(["10.0.0.1", "10.0.0.1/24", "fd00::1", "fd00::1/64", "::ffff:10.0.0.1", "10.0.0.1/024"])] * 5,
    st.sampled_from(["10.0.0.1/33", "fe80::1%eth0", "10.0.0.01", "", "10.0.0", "x", "10.0.0.1/", "10.0.0.1/+8"]),
    st.sampled_from(["::1/129", "1::2::3", "010.0.0.1", "1.2.3.4.5", "::1.2.3.4", "::ffff:1.2.3.4/96", "[::1]"]),
)
GATEWAYS = st.one_of(*[st.sampled_from(["10.0.0.1", "fd00::1", "::ffff:10.0.0.1", ""])] * 9, ADDRESSES)
HARDWARE = st.one_of(
    *[st.sampled_from(["02:00:00:00:00:01", "0200.0000.0001", "02:00:00:00:00:00:00:01", ":".join(["0A"] * 20)])] * 5,
    st.sampled_from(["02-00-00-00-00-01", "0200.0000.0000.0001", ""]),
    st.sampled_from(["02:00:00-00:00:01", "2:0:0:0:0:1", "02:00:00:00:00", "x", "0200:0000:0001", "02.00.00.00.00.01"]),
)
NUMBERS = st.one_of(
    *[st.sampled_from(["0", "1", "-0", "-5", "9223372036854775807"])] * 5,
    st.sampled_from(["1.0", "1e3", "9223372036854775808", "1e400"]),
).map(Raw)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "a", "\u00e9", "\ufffd"]))
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.lists(st.tuples(st.sampled_from(["name", "x", "hostPort"]), inner), max_size=2).map(tuple),
    ),
    max_leaves=4,
)
PORTS = st.lists(
    st.one_of(
        st.none(),
        st.lists(
            st.one_of(
                st.tuples(st.sampled_from(["hostPort", "containerPort", "HOSTPORT", "ho\u017ftport"]), NUMBERS),
                st.tuples(st.sampled_from(["protocol", "hostIP", "x"]), st.sampled_from(["tcp", ""])),
            ),
            max_size=2,
        ).map(tuple),
    ),
    max_size=2,
)
RATES = st.lists(st.tuples(st.sampled_from(["ingressRate", "egressBurst", "IngressBurst"]), NUMBERS), max_size=2).map(
    tuple
)
VALUES = {
    "name": NAMES,
    "namespace": LABELS,
    "interface": INTERFACES | st.just(""),
    "interfaceRequest": INTERFACES,
    "ips": st.lists(ADDRESSES | st.none(), max_size=2),
    "mac": HARDWARE,
    "infiniband-guid": HARDWARE,
    "portMappings": PORTS,
    "bandwidth": RATES,
    "deviceID": st.just("0000:01:00.0"),
    "cni-args": st.lists(st.tuples(st.sampled_from(["a", "b"]), ANYTHING), max_size=2).map(tuple),
    "default-route": st.lists(GATEWAYS | st.none(), max_size=2),
}
SPELLINGS = {"name": ["Name", "NAME"], "namespace": ["name\u017fpace", "nameSpace"], "default-route": ["Default-Route"]}


@st.composite
def pairs(draw) -> tuple[str, object]:
    key = draw(st.sampled_from([*VALUES, "x-unknown"]))
    value = draw(st.one_of(*[VALUES.get(key, ANYTHING)] * 14, ANYTHING))
    return draw(st.sampled_from([key, key, *SPELLINGS.get(key, [])])), value


@st.composite
def objects(draw) -> object:
    if draw(st.integers(0, 19)) == 0:
        return draw(ANYTHING)
    named = [("name", draw(LABELS))] if draw(st.integers(0, 9)) else []
    return (*named, *draw(st.lists(pairs(), max_size=3)))


def text_of(value: object, space: str = "") -> str:
    """JSON text of a value; a tuple is an object's pairs, so that a key may be there twice."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, tuple):
        inner = f",{space}".join(f"{json.dumps(key, ensure_ascii=False)}:{text_of(item)}" for key, item in value)
        return f"{{{inner}{space}}}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@st.composite
def arrays(draw) -> str:
    space = draw(st.sampled_from(["", "", " ", "\n\t", "\r"]))
    text = f"[{space}" + f"{space},".join(text_of(item, space) for item in draw(st.lists(objects(), max_size=4))) + "]"
    kind = draw(st.integers(0, 24))
    if kind == 0:  # one character is lost
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + text[at + 1 :]
    elif kind == 1:
        text += draw(st.sampled_from([",", "x", "[]", "\u00a0", "\f"]))
    return draw(st.sampled_from(["", " ", "\n"])) + text + space


TEXTS = st.one_of(LISTS, arrays(), arrays(), RARELY_ODD_TEXT)
