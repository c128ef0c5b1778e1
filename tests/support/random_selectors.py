"""Writes random expressions over the devices of `selecting`, most of which Kubernetes accepts."""

import json
import random

_DOMAINS = ("dra.net", "dra.net", "gpu.nvidia.com", "gpu.nvidia.com", "oke.dra.net", "resource.kubernetes.io", "nope")
_NAMES = ("ifName", "rdma", "mtu", "numaNode", "firmware", "absent", "ipv4", "big", "driverVersion", "type", "index")
_AMOUNTS = ("bandwidth", "tiny", "buffers", "memory", "absent")
_CONSTANTS = ('"gpu1rdma0"', '"dummy0"', "0", "1", "8896", "-1", "true", "false", "1.0", "8896.0", "1u", "null", '""')
_QUANTITIES = ("1", "1m", "400G", "1.5Gi", "80Gi", "-1", "0", "1e3", "0.5")
_VERSIONS = ("1.0.0", "28.39.1002", "580.95.5", "1.0.0-rc.1", "1.0.0+b", "01.0.0", "1.0")
_PATTERNS = ("gpu", "0", "^gpu", "rdma[0-9]$", "a|b", "x*")
_MAX_DEPTH = 4


class Writer:
    """Writes expressions from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._depth = 0

    def write(self) -> str:
        """Return an expression that is true or false."""
        pick = self._random.choice
        if self._depth >= _MAX_DEPTH:
            return pick(["true", "false", f"has({self._attribute()})"])
        self._depth += 1
        form = pick(_FORMS)
        parts = {
            letter: write()
            for letter, write in (
                ("A", self._attribute), ("K", self._constant), ("C", self._amount), ("Q", self._quantity),
                ("R", self._quantity), ("S", self._version), ("T", self._version), ("V", self._value),
                ("W", self._value), ("D", self._domain), ("N", lambda: pick(_NAMES)), ("P", lambda: pick(_PATTERNS)),
                ("B", self.write), ("E", self.write),
            )
            if f"<{letter}>" in form
        }  # fmt: skip
        self._depth -= 1
        for letter, text in parts.items():
            form = form.replace(f"<{letter}>", text)
        return form

    def _domain(self) -> str:
        return json.dumps(self._random.choice(_DOMAINS))

    def _attribute(self) -> str:
        return f"device.attributes[{self._domain()}].{self._random.choice(_NAMES)}"

    def _amount(self) -> str:
        return f"device.capacity[{self._domain()}].{self._random.choice(_AMOUNTS)}"

    def _constant(self) -> str:
        return self._random.choice(_CONSTANTS)

    def _quantity(self) -> str:
        constant = f'quantity("{self._random.choice(_QUANTITIES)}")'
        sum_, difference = f"{self._amount()}.add({constant})", f"{self._amount()}.sub(5)"
        return self._random.choice((self._amount(), self._amount(), constant, sum_, difference))

    def _version(self) -> str:
        return self._random.choice((f'semver("{self._random.choice(_VERSIONS)}")', self._attribute()))

    def _value(self) -> str:
        form = self._random.choice(
            (
                "<A>", "<A>", "<K>", "device.driver", "(<A> + 1)", "size(<A>)", "<A>.substring(0, 3)", "(<A> % 7)",
                "<A>.lowerAscii()", '<A>.indexOf("r")', '<A>.split("r")[0]', "-<A>", "<A>.major()",
                "int(<A>)", "int(<A>.substring(3, 4))", 'int(<A>.split("r")[0])', "int(<K>)", "int(<A>.indexOf(<K>))",
            )
        )  # fmt: skip
        return form.replace("<A>", self._attribute()).replace("<K>", self._constant())


_FORMS = (
    "<V> == <W>", "<V> != <W>", "<V> < <W>", "<V> >= <W>", "<A> == <K>", "<A> in [<K>, <K>]", "has(<A>)", "has(<C>)",
    '"<N>" in device.attributes[<D>]', "<D> in device.attributes", "<A>", "!<A>", "!(<B>)", "(<B> && <E>)",
    "(<B> || <E>)", "<B> && <E>", "<B> || <E>", "(<B> ? <A> : <E>)", "<Q>.isGreaterThan(<R>)", "<Q>.isLessThan(<R>)",
    "<Q> == <R>", "<Q>.compareTo(<R>) > 0", "<C>.isInteger()", "<C>.asApproximateFloat() > 1.5", "<C>.asInteger() > 1",
    "sign(<Q>) == 1", "<S>.isGreaterThan(<T>)", "<S>.isLessThan(<T>)", "<S> == <T>", "<S>.minor() == 39",
    '<A>.startsWith("<P>")', '<A>.endsWith("<P>")', '<A>.contains("<P>")', '<A>.matches("<P>")',
    "cel.bind(x, <A>, x == <K> || <B>)", "cel.bind(x, device.attributes[<D>], x.<N> == <K>)",
    'device.attributes[<D>].exists(k, k == "<N>")', 'device.attributes[<D>].all(k, k == "<N>" || k.startsWith("r"))',
    "[<K>, <K>].exists(k, k == <A>)", "<A>.size() > 3", "device.attributes[<D>].?<N>.hasValue()",
    "device.attributes[<D>].?<N>.orValue(<K>) == <K>", "device.attributes.exists(d, d == <D>)",
    "device.attributes[<D>].size() > 2",
)  # fmt: skip
