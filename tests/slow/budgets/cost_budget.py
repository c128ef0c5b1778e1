"""Measures the cost of processing objects of users, and generates the most expensive ones.

`measure_cost(call)` returns the cost of a call, and `check_cost(cost, title, size)` fails if it is above the budget.
`list_objects(view, base)` walks the fields of a msgspec view, and yields objects that fill a `Size`: for each field the
longest, most numerous and most ambiguous values. `list_pairs` fills two lists or maps at a time. A new field of a view
is covered without a change here. `check_objects(rows, handle)` checks each of them.

    cost_budget.check_objects(cost_budget.sample_rows(cost_budget.list_objects(views.Pod, base), 4), handle)

`sample_rows` takes some of the objects, different ones each day, if all would take too long.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import gc
import inspect
import itertools
import re
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

STALL_SECONDS = 0.050  # of CPU time, without a turn of the event loop
TOTAL_SECONDS = 0.250  # of CPU time, of all threads
_FIXED_WORK_SECONDS = 0.005  # of CPU time, in which the quiet reference machine does the work of `measure_slowness`
BYTES_PER_BYTE = 34  # peak of memory for each byte of an object: `{},` is three bytes, and becomes a struct of 100
SMALL = 192 * 1024  # bytes: a smaller object may take the memory of one of this size, which is 6 MiB
RETAINED_BYTES = 128 * 1024  # that may stay in caches after an object is gone
ROOM = 3 * 1024 * 1024 // 2  # bytes of an object: the limit of etcd
# a busy machine makes a call slower, and never faster: three slow ones in a row were seen
_ATTEMPTS, _PAUSE_SECONDS = 10, 0.2  # the pauses, because what uses the processor's caches stays for a while

EACH = "*"  # a step of a path: any entry of a list or map
Tree = dict[str, Any]
Path = tuple[str, ...]
Theme = Callable[[Path, int], str]  # the short text at a path in the entry with this number


class Cost(NamedTuple):
    """CPU seconds of the slowest callback of the event loop and of all, and peak and remaining bytes of memory."""

    stall: float
    total: float
    peak: int = 0
    retained: int = 0

    def describe(self) -> str:
        times = f"{self.stall * 1000:.0f} ms at once, {self.total * 1000:.0f} ms in all"
        return f"{times}, {self.peak >> 10} KiB at the peak, {self.retained >> 10} KiB afterwards"


class Size(NamedTuple):
    """The bytes of an object, the number of entries of its lists and maps, and that of its lists alone.

    `is_valid`: no list or map has more entries than its type allows, and each list and map counts as a value itself.
    """

    room: int = ROOM
    values: int = 1 << 30
    listed: int = 1 << 30
    is_valid: bool = False


class Row(NamedTuple):
    """The title of an object, and the function that builds it."""

    title: str
    build: Callable[[], Tree]

    def encode(self) -> bytes:
        return msgspec.json.encode(self.build())


LARGEST = Size()


def sample_rows(rows: Iterable[Row], share: int, turn: int = 0) -> list[Row]:
    """Return one of each `share` rows, at least one: different ones for each turn below `share` and each day.

    So every row is measured in some run, and a run can be repeated on the same day.
    """
    rows, part = list(rows), (turn + dt.datetime.now(dt.UTC).toordinal()) % share
    return [row for row in rows if zlib.crc32(row.title.encode()) % share == part] or rows[:1]


# --- measuring ----------------------------------------------------------------------------------------


def measure_cost(
    call: Callable[[], Any],
    *,
    memory: bool = True,
    stall_seconds: float = STALL_SECONDS,
    seconds: float = TOTAL_SECONDS,
) -> Cost:
    """Return the cost of a call on an event loop of its own. `call` may return an awaitable.

    CPU time is measured, so other processes disturb little. A call above the limits is repeated, and its fastest
    repetition counts, in seconds of the reference machine: other processes on the same core's caches and threads slow
    this one by up to a half. Memory is measured in a further call, because that takes time. If too much memory remains,
    the call is repeated, and the least counts: a bounded table or log grows in steps, during any call.
    """
    stall, total = _measure_time(call)
    for _ in range(_ATTEMPTS - 1):
        if stall <= stall_seconds and total <= seconds:
            break
        time.sleep(_PAUSE_SECONDS)
        slowness = measure_slowness()
        again = _measure_time(call)
        slowness = max(1.0, min(slowness, measure_slowness()))
        stall, total = min(stall, again[0] / slowness), min(total, again[1] / slowness)
    peak, retained = _measure_memory(call) if memory else (0, 0)
    for _ in range(_ATTEMPTS - 1):
        if retained <= RETAINED_BYTES:
            break
        retained = min(retained, _measure_memory(call)[1])
    return Cost(stall, total, peak, retained)


def measure_slowness() -> float:
    """Return the time of a fixed computation, relative to its time on the idle reference machine."""
    began = time.thread_time()
    sum(map(hash, map(str, range(30_000))))
    return (time.thread_time() - began) / _FIXED_WORK_SECONDS


def is_within(cost: Cost, size: int) -> bool:
    """True if a cost is within the budget of an object with `size` bytes."""
    return (
        cost.stall <= STALL_SECONDS
        and cost.total <= TOTAL_SECONDS
        and cost.peak <= max(size, SMALL) * BYTES_PER_BYTE
        and cost.retained <= RETAINED_BYTES
    )


def check_cost(cost: Cost, title: str, size: int) -> None:
    """Fail if a cost exceeds the budget of an object with `size` bytes."""
    assert is_within(cost, size), f"{title} ({size >> 10} KiB): {cost.describe()}"


def check_objects(
    rows: Iterable[Row],
    handle: Callable[[bytes], Any],
    *,
    encode: Callable[[Tree], bytes] = msgspec.json.encode,
    memory: bool = True,
) -> None:
    """Fail if the handling of an object exceeds its budget; name all such objects. Equal ones count once."""
    problems, tried = [], set()
    for row in rows:
        body = encode(row.build())
        if hash(body) in tried:
            continue
        tried.add(hash(body))
        cost = measure_cost(functools.partial(handle, body), memory=memory)
        if not is_within(cost, len(body)):
            problems.append(f"{row.title} ({len(body) >> 10} KiB): {cost.describe()}")
    assert tried
    assert not problems, "\n" + "\n".join(problems)


@contextlib.contextmanager
def time_callbacks() -> Iterator[list[float]]:
    """Yield a list to which each callback of asyncio's loops adds the CPU seconds that its thread took."""
    seconds: list[float] = []
    run = asyncio.Handle._run

    def run_timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        try:
            run(handle)
        finally:
            seconds.append(time.thread_time() - began)

    asyncio.Handle._run = run_timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


async def _await(call: Callable[[], Any]) -> None:
    answer = call()
    if inspect.isawaitable(answer):
        await answer


@contextlib.contextmanager
def _set_earlier_objects_aside() -> Iterator[None]:
    """Exclude existing objects from garbage collections, as the servers do; otherwise each takes 50 ms."""
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


def _measure_time(call: Callable[[], Any]) -> tuple[float, float]:
    with _set_earlier_objects_aside(), time_callbacks() as seconds:
        began = time.process_time()
        asyncio.run(_await(call))
        total = time.process_time() - began
    return max(seconds), total


def _measure_memory(call: Callable[[], Any]) -> tuple[int, int]:
    with _set_earlier_objects_aside():
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            asyncio.run(_await(call))
            peak = tracemalloc.get_traced_memory()[1]
            gc.collect()
            return peak - before, tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()


# --- the fields of a view -----------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of a view. `entry` is the type of the entries of a list or map, `key` that of a map's keys."""

    path: Path
    kind: str  # text, number, flag, any, list or map
    entry: msgspec.inspect.Type | None = None
    key: msgspec.inspect.Type | None = None
    most: int | None = None  # entries that the type allows

    @property
    def title(self) -> str:
        return ".".join(self.path).replace(".*", "[]")


def list_fields(view: Any) -> list[Field]:
    """Return all fields of a view and of the objects in it, except fields that are objects."""
    return list(_walk(msgspec.inspect.type_info(view) if not isinstance(view, msgspec.inspect.Type) else view, ()))


def _walk(info: msgspec.inspect.Type, path: Path) -> Iterator[Field]:
    kinds, info = msgspec.inspect, _strip(info)
    if isinstance(info, kinds.UnionType):
        options = [option for option in info.types if not isinstance(option, kinds.NoneType)]
        for option in options:
            yield from _walk(option, path)
    elif isinstance(info, kinds.StructType):
        for field in _list_read(info):
            yield from _walk(field.type, (*path, field.encode_name))
    elif isinstance(info, kinds.DictType):
        yield Field(path, "map", info.value_type, info.key_type, info.max_length)
        yield from _walk(info.value_type, (*path, EACH))
    elif isinstance(info, kinds.ListType | kinds.VarTupleType | kinds.SetType | kinds.FrozenSetType):
        yield Field(path, "list", info.item_type, most=info.max_length)
        yield from _walk(info.item_type, (*path, EACH))
    elif isinstance(info, kinds.StrType):
        yield Field(path, "text")
    elif isinstance(info, kinds.IntType | kinds.FloatType):
        yield Field(path, "number")
    elif isinstance(info, kinds.BoolType):
        yield Field(path, "flag")
    else:
        yield Field(path, "any")


def _list_read(info: msgspec.inspect.StructType) -> list[msgspec.inspect.Field]:
    """Return the fields of an object except those with impossible names, which are never decoded."""
    return [field for field in info.fields if not field.encode_name.startswith("-")]


def _strip(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Return a type without its metadata."""
    return _strip(info.type) if isinstance(info, msgspec.inspect.Metadata) else info


# --- values -------------------------------------------------------------------------------------------

# Repeated, each fills the room of a field: what parsers of names, lists, ranges, paths, numbers and JSON read.
PARTS = (
    *"a 1 0 9 - , = : ; | % ^ . * ( [ { / é".split(),  # noqa: SIM905 - short
    *'A_ a- 1- 1. 1, a, a-b, a=1, [[ ../ /./ a/ a/b, a@b, {"a": [{"name":"a"}, {"name":"a"}, mlx5_0:1,'.split(),  # noqa: SIM905 - short
    *(" ", "\t", "\n", "A=1\n", "\\", '"', "((a)*)*", "$(A)", "$(A", "${A}", "NCCL_", "export NCCL_A=1;"),
)
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 2**31, 2**63 - 1, 2**63, 10**18, 10**19, 10**400, 1e308, 1e-300),
    *"1e19 1E1000000 1e-1000000 1e9999999999 99999999 1000000 1Ei -1 NaN +1 1_000".split(),  # noqa: SIM905 - short
    *("9" * 4000, "9" * 100_000, "0." + "0" * 100_000 + "1", ""),
)
_DEEP = (b"[", b'{"a":')


def name_plainly(path: Path, number: int) -> str:
    """Return a name that is equal at all paths, so that names of one list refer to those of another."""
    return f"n{number}"


def write_quantity(path: Path, number: int) -> str:
    """Return a unique quantity, so that none is found in a cache."""
    return f"{number}Mi"


def repeat_part(part: str, room: int) -> str:
    """Return the part, repeated until its JSON has `room` bytes."""
    return part * max(1, room // max(1, len(msgspec.json.encode(part)) - 2))


def list_values(field: Field, size: Size, theme: Theme = name_plainly) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield titles, and functions that return a value for a field that fills the size."""
    if field.kind in ("text", "any"):
        for part in PARTS:
            yield f"{part!r} repeated", functools.partial(repeat_part, part, size.room)
    if field.kind in ("text", "number"):
        for number in NUMBERS:
            yield f"{str(number)[:20]!r}", functools.partial(_get, number)
    if field.kind == "flag":
        yield "true", functools.partial(_get, True)
    if field.kind == "any":
        for part in _DEEP:
            yield f"deep {part!r}", functools.partial(_get, msgspec.Raw(part * (size.room // len(part))))
    if field.kind in ("list", "map"):
        for depth in (-1, 0, 1, 4):
            yield f"entries of depth {depth}", functools.partial(build_entries, field, size, theme, depth)
        equal = functools.partial(_ignore_number, theme)
        yield "equal entries", functools.partial(build_entries, field, size, equal)


def _get(value: Any) -> Any:
    return value


def _ignore_number(theme: Theme, path: Path, _: int) -> str:
    return theme(path, 0)


def build_entries(field: Field, size: Size, theme: Theme, depth: int = 1) -> Any:
    """Return a list or map that fills the size. `depth`: number of nested lists or maps with an entry."""
    path = (*field.path, EACH)
    build, name = prepare_entry(field.entry, path, theme, depth), prepare_entry(field.key, field.path, theme, 0)
    sample = msgspec.json.encode(build(10**6))
    key = len(name(10**6)) + 3 if field.kind == "map" else 0
    weight = sample.count(b",") + 1 + (sample.count(b"[") + sample.count(b"{") if size.is_valid else 0)
    count = min(size.room // (len(sample) + 1 + key), size.values // weight)
    if size.is_valid and field.most is not None:
        count = min(count, field.most)
    if field.kind == "list":
        return [build(number) for number in range(min(count, size.listed))]
    return {name(number): build(number) for number in range(count)}


def prepare_entry(info: msgspec.inspect.Type | None, path: Path, theme: Theme, depth: int) -> Callable[[int], Any]:
    """Return a function that builds the value of a type with a number.

    At depth 0 an object has only its name, and lists and maps are empty.
    """
    kinds, info = msgspec.inspect, _strip(info) if info is not None else None
    if isinstance(info, kinds.UnionType):
        info = _strip(next(option for option in info.types if not isinstance(option, kinds.NoneType)))
    if isinstance(info, kinds.StrType):
        return _prepare_text(info.pattern, path, theme)
    if isinstance(info, kinds.StructType) and depth >= 0:
        fields = [field for field in _list_read(info) if depth or field.encode_name in ("name", "key")]
        builds = [
            (name, prepare_entry(field.type, (*path, name), theme, depth))
            for name, field in ((field.encode_name, field) for field in fields)
        ]
        filled = [(name, build) for name, build in builds if build(0) not in (None, {}, [])]
        return lambda number: {name: build(number) for name, build in filled}
    if isinstance(info, kinds.DictType) and depth > 0:
        name = prepare_entry(info.key_type, path, theme, 0)
        value = prepare_entry(info.value_type, (*path, EACH), theme, depth - 1)
        return lambda number: {name(number): value(number)}
    if isinstance(info, kinds.ListType | kinds.VarTupleType) and depth > 0:
        item = prepare_entry(info.item_type, (*path, EACH), theme, depth - 1)
        return lambda number: [item(number)]
    if isinstance(info, kinds.StructType | kinds.DictType):
        return lambda _: {}
    if isinstance(info, kinds.ListType | kinds.VarTupleType):
        return lambda _: []
    if isinstance(info, kinds.LiteralType):
        return functools.partial(_build_constant, info.values[0])
    if isinstance(info, kinds.BoolType):
        return functools.partial(_build_constant, True)
    return functools.partial(_build_constant, 1 if isinstance(info, kinds.IntType | kinds.FloatType) else None)


def _build_constant(value: Any, _: int) -> Any:
    return value


_FORMS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: f"/{text}",
    lambda text: f"a/{text}",
    lambda text: text.upper(),
    lambda _: "0000:20:1b.0",
)


def _prepare_text(pattern: str | None, path: Path, theme: Theme) -> Callable[[int], str]:
    """Return a function that builds the theme's text, in the first form that the pattern accepts."""
    forms = [form for form in _FORMS if pattern is None or re.search(pattern, form(theme(path, 0)))]
    if pattern is None or not forms:
        return functools.partial(theme, path)
    return lambda number: forms[0](theme(path, number))


# --- objects ------------------------------------------------------------------------------------------


def set_value(tree: Tree, path: Path, value: Any) -> Tree:
    """Return a copy of the tree with a value at a path, which goes through the first entry of lists and maps."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if step == EACH:
        entries = tree or ([{}] if rest else [None])
        if isinstance(entries, dict):
            key = next(iter(entries))
            return {**entries, key: set_value(entries[key], rest, value)}
        return [set_value(entries[0], rest, value), *entries[1:]]
    below = (tree or {}).get(step)
    return {**(tree or {}), step: set_value(below, rest, value)}


def add_value(tree: Tree, path: Path, value: Any) -> Tree:
    """Return a copy of the tree with a value at a path, after the existing entries of a list or map."""
    before: Any = tree
    for step in path:
        before = (
            next(iter(before.values() if isinstance(before, dict) else before), None)
            if step == EACH
            else (before or {}).get(step)
        )
        if before is None:
            break
    if isinstance(before, list) and isinstance(value, list):
        value = [*before, *value]
    elif isinstance(before, dict) and isinstance(value, dict):
        value = {**before, **value}
    return set_value(tree, path, value)


def list_objects(
    view: Any, base: Tree, *, size: Size = LARGEST, themes: tuple[Theme, ...] = (name_plainly,)
) -> Iterator[Row]:
    """Yield objects in which one field has the largest, longest, most numerous or most ambiguous value."""
    half = size.room // 2
    yield Row("a field that is not read", lambda: {**base, "x": msgspec.Raw(b"[" * half + b"]" * half)})
    for field in list_fields(view):
        for theme in themes if field.kind in ("list", "map") else themes[:1]:
            for title, build in list_values(field, size, theme):
                yield Row(f"{field.title}: {title} ({theme.__name__})", functools.partial(_build, base, field, build))


def _build(base: Tree, field: Field, build: Callable[[], Any]) -> Tree:
    return add_value(base, field.path, build())


def list_pairs(
    view: Any, base: Tree, *, size: Size = LARGEST, themes: tuple[Theme, ...] = (name_plainly,)
) -> Iterator[Row]:
    """Yield objects in which two lists or maps have many entries, which refer to each other."""
    fields = [field for field in list_fields(view) if field.kind in ("list", "map")]
    for theme, (one, other) in itertools.product(themes, itertools.combinations(fields, 2)):
        build = _nest if other.path[: len(one.path)] == one.path else _join
        title = f"{one.title} x {other.title} ({theme.__name__})"
        yield Row(title, functools.partial(build, base, one, other, size, theme))


def _join(base: Tree, one: Field, other: Field, size: Size, theme: Theme) -> Tree:
    """Return an object in which two lists fill half of the size each."""
    half = size._replace(room=size.room // 2, values=size.values // 2)
    tree = add_value(base, one.path, build_entries(one, half, theme))
    return add_value(tree, other.path, build_entries(other, half, theme))


def _nest(base: Tree, outer: Field, inner: Field, size: Size, theme: Theme) -> Tree:
    """Return an object in which each entry of the outer list has as many entries as the outer list itself."""
    inside = inner.path[len(outer.path) + 1 :]
    sample = build_entries(inner, Size(1000, 8), theme, 0)
    length = len(msgspec.json.encode(sample)) / max(1, len(sample)) + 4  # later numbers are longer
    count = int(min(size.room / length, size.values) ** 0.5)
    square = size._replace(values=count)
    many, entries = build_entries(inner, square, theme, 0), build_entries(outer, square, theme, 0)
    if isinstance(entries, list):
        return add_value(base, outer.path, [set_value(entry, inside, many) for entry in entries])
    return add_value(base, outer.path, {key: set_value(entry, inside, many) for key, entry in entries.items()})
