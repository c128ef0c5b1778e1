"""Error messages for violations of the policy's schema, for the author of the document.

Every message contains the value, the allowed values and the fix, and no text of the validator. The document is needed
only for the source text of values.
"""

import dataclasses
import difflib
import functools
import importlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from railwright.cluster import schema_check
from railwright.fabric import text as texts

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]
Written = Callable[[Path], str | None]
Failure = Any  # jsonschema's ValidationError, whose stubs make every attribute optional

MOST = 200  # messages per document: nobody reads more, and each costs a search for the nearest word
_MAX_SHOWN = 80  # characters of a value quoted in a message: enough to find it, too few to flood a log
_CLOSE, _FAR = 0.75, 0.6  # difflib ratios: a typing error, and difflib's default for any similarity
_KINDS: Mapping[str, str] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping (key: value)",
    "array": "a list",
}


@dataclasses.dataclass(frozen=True)
class Violation:
    """One message, its path, and the repair that makes the rest of the document checkable."""

    path: Path
    message: str
    repair: Literal["keep", "replace", "remove"] = "keep"
    schema: Schema = dataclasses.field(default_factory=dict)  # of the replacement value
    guess: Path | None = None  # for an unknown key: the path that was probably intended


def list_violations(schema: Schema, tree: Any, written: Written) -> Iterator[Violation]:
    """Yield every violation of the schema, at most one more than MOST."""
    if schema_check.is_valid(schema, tree, schema["$defs"]):
        return
    formatter = _Formatter(schema, written)
    errors = _build_validator_class()(schema).iter_errors(tree)
    all_violations = itertools.chain.from_iterable(formatter.format_error(error) for error in errors)
    yield from itertools.islice(all_violations, MOST + 1)


def format_value(value: Any) -> str:
    """Return a value for a message: escaped and truncated."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    text = json.dumps(value)
    return texts.abbreviate(text, _MAX_SHOWN)


def find_nearest(word: str, allowed: Iterable[str], cutoff: float = _FAR) -> str | None:
    """Return the allowed word that was probably intended, ignoring case; None if none is similar."""
    folded = {choice.casefold(): choice for choice in allowed}
    close = difflib.get_close_matches(word[:_MAX_SHOWN].casefold(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


class _Formatter:
    """Formats the errors of one document against one schema."""

    def __init__(self, schema: Schema, written: Written) -> None:
        self._definitions: Mapping[str, Schema] = schema["$defs"]
        self._written = written

    def format_error(self, error: Failure) -> Iterator[Violation]:
        """Yield the violations of one validator error; for a choice (`anyOf`) those of its first alternative."""
        path: Path = tuple(error.absolute_path)
        where = list(error.absolute_schema_path)
        if error.validator == "anyOf":  # always a section, or null
            for inner in error.context or ():
                if inner.schema_path[0] == 0:
                    yield from self.format_error(inner)
        elif len(where) > 1 and where[-2] == "propertyNames":
            key = str(error.instance)
            yield Violation((*path, key), f"{format_value(key)} is not {self._describe_expected(error.schema)}")
        elif error.validator == "required":
            yield from self._describe_missing(path, error)
        elif error.validator == "additionalProperties":
            yield from self._describe_unknown(path, error)
        else:
            yield _WORDS[str(error.validator)](self, path, error)

    def _describe_missing(self, path: Path, error: Failure) -> Iterator[Violation]:
        for key in error.validator_value:
            if key in error.instance:
                continue
            schema = error.schema["properties"][key]
            yield Violation(
                (*path, key),
                f"is missing; it must be {self._describe_expected(schema)}",
                "replace",
                self._resolve(schema),
            )

    def _describe_unknown(self, path: Path, error: Failure) -> Iterator[Violation]:
        known = error.schema["properties"]
        for key in error.instance:
            if key in known:
                continue
            near, elsewhere = find_nearest(key, known, _CLOSE), self._list_sections_with(key)
            if near is None and not elsewhere:
                near = find_nearest(key, known)
            guess = None if near is None or near in error.instance else (*path, near)
            if near is not None:
                advice = f"did you mean {near}?"
            elif elsewhere:
                advice = f"it belongs {' or '.join(elsewhere)}"
            else:
                advice = f"remove it, or use one of: {', '.join(known)}"
            yield Violation((*path, key), f"is not a known key; {advice}", "remove", guess=guess)

    def describe_type(self, path: Path, error: Failure) -> Violation:
        """Return the violation for a value of the wrong YAML type."""
        value, types = error.instance, _list_types(error.schema)
        expected = self._describe_expected(error.schema)
        text = self._written(path)
        if value is None:
            message = f"has no value; it must be {expected}"
        elif "string" in types and isinstance(value, bool | int | float) and text is not None:
            noun = "true or false" if isinstance(value, bool) else "a number"
            message = f"YAML reads {text} as {noun}, but text is expected; quote it: {json.dumps(text)}"
        elif isinstance(value, str) and types & {"integer", "number", "boolean"} and _is_readable_as(types, value):
            message = f"{format_value(value)} is text; it must be {expected}: remove the quotes"
        elif "array" in types and not isinstance(value, dict):
            message = f"{format_value(value)} is not a list; write [{_strip_quotes(format_value(value))}]"
        else:
            message = f"{format_value(value)} is not {expected}"
        return Violation(path, message, "replace", error.schema)

    def describe_word(self, path: Path, error: Failure) -> Violation:
        """Return the violation for a word that is not allowed."""
        value, text = error.instance, self._written(path)
        expected = self._describe_expected(error.schema)
        if value is None:
            message = f"has no value; it must be {expected}"
        elif isinstance(value, bool) and text is not None:
            message = f"YAML reads {text} as true or false; it must be {expected}"
        else:
            words = [word for word in error.validator_value if word is not None]
            near = find_nearest(value, words) if isinstance(value, str) and len(words) > 1 else None
            advice = "" if near is None else f"; did you mean {near}?"
            message = f"{format_value(value)} is not allowed; it must be {expected}{advice}"
        return Violation(path, message, "replace", error.schema)

    def describe_range(self, path: Path, error: Failure) -> Violation:
        """Return the violation for a number that is too small or too large.

        It is replaced, because the checks of relations count to numbers and divide by them.
        """
        expected = self._describe_expected(error.schema)
        return Violation(
            path, f"{format_value(error.instance)} is out of range; it must be {expected}", "replace", error.schema
        )

    def describe_format(self, path: Path, error: Failure) -> Violation:
        """Return the violation for text in the wrong format."""
        return Violation(path, f"{format_value(error.instance)} is not {self._describe_expected(error.schema)}")

    def describe_empty(self, path: Path, _error: Failure) -> Violation:
        """Return the violation for an empty list or mapping."""
        return Violation(path, "is empty; it needs at least one entry")

    def _describe_expected(self, schema: Schema) -> str:
        """Return the expected value, as the end of "it must be ..."."""
        real = self._resolve(schema)
        if "enum" in real:
            words = [str(word) for word in real["enum"] if word is not None]
            return words[0] if len(words) == 1 else f"one of: {', '.join(words)}"
        if "patternErrorMessage" in real:
            return str(real["patternErrorMessage"])
        kinds = " or ".join(_KINDS[kind] for kind in _KINDS if kind in _list_types(real))
        above = f" above {real['exclusiveMinimum']}" if "exclusiveMinimum" in real else ""
        least = f" from {real['minimum']}" if "minimum" in real else ""
        most = f" to {real['maximum']}" if least else f" and at most {real['maximum']}" if above else ""
        return f"{kinds}{above}{least}{most}"

    def _resolve(self, schema: Schema) -> Schema:
        reference = schema.get("$ref") or schema.get("anyOf", [{}])[0].get("$ref")
        return schema if reference is None else self._definitions[reference.rpartition("/")[2]]

    def _list_sections_with(self, key: str) -> list[str]:
        """Return the sections in which an unknown key is allowed: "under nccl", "at the top level"."""
        return [
            self._describe_place(name)
            for name, definition in self._definitions.items()
            if key in definition.get("properties", ())
        ]

    def _describe_place(self, section: str) -> str:
        reference = f'"#/$defs/{section}"'
        for definition in self._definitions.values():
            for key, value in definition.get("properties", {}).items():
                if reference in json.dumps(value):
                    return f"under {key}"
        return "at the top level"


def _list_types(schema: Schema) -> set[str]:
    kinds = schema.get("type", "string")
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _is_readable_as(types: set[str], text: str) -> bool:
    if "boolean" in types:
        return text.lower() in ("true", "false", "yes", "no", "on", "off")
    return re.fullmatch(r"[+-]?\d+(\.\d+)?" if "number" in types else r"[+-]?\d+", text) is not None


def _strip_quotes(text: str) -> str:
    return text.strip('"')


_WORDS: Mapping[str, Callable[[_Formatter, Path, Failure], Violation]] = {
    "type": _Formatter.describe_type,
    "enum": _Formatter.describe_word,
    "pattern": _Formatter.describe_format,
    "minimum": _Formatter.describe_range,
    "maximum": _Formatter.describe_range,
    "exclusiveMinimum": _Formatter.describe_range,
    "minItems": _Formatter.describe_empty,
    "minProperties": _Formatter.describe_empty,
}


@functools.cache
def _build_validator_class() -> Any:
    """Return the validator of jsonschema with our own rules for whole numbers, patterns and required keys.

    Imports jsonschema, which is slow and needed for an invalid document only.
    """
    validators = importlib.import_module("jsonschema.validators")
    make_error = importlib.import_module("jsonschema.exceptions").ValidationError

    def check_pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Failure]:
        if isinstance(value, str) and schema_check.compile_pattern(pattern)(value) is None:
            yield make_error("pattern")

    def check_required(_validator: Any, required: Any, value: Any, _schema: Any) -> Iterator[Failure]:
        """Yield one error for all missing keys, which `_describe_missing` splits."""
        if isinstance(value, dict) and not value.keys() >= set(required):
            yield make_error("required")

    base = validators.Draft202012Validator
    return validators.extend(
        base,
        {"pattern": check_pattern, "required": check_required},
        type_checker=base.TYPE_CHECKER.redefine("integer", lambda _checker, value: schema_check.is_integer(value)),
    )
