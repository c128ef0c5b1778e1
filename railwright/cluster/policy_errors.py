"""Lists all errors of an invalid policy, for its author.

jsonschema finds the values that violate the schema, and `checks` the relations. Every message contains the value, the
allowed values and the fix, and no text of the validator.
"""

import difflib
import functools
import itertools
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from jsonschema import exceptions, validators

from railwright.cluster import documents
from railwright.fabric import text as texts
from railwright.fabric.policy import checks, model, schema

Path = documents.Path
Schema = Mapping[str, Any]
Violation = Any  # jsonschema's ValidationError, whose stubs make every attribute optional

_MAX_SHOWN = 80  # characters of a value quoted in a message: enough to find it, too few to flood a log
_CLOSE, _FAR = 0.75, 0.6  # difflib ratios: a typing error, and difflib's default for any similarity
_TYPES: Mapping[str, str] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping (key: value)",
    "array": "a list",
}
_OF_RIGHT_TYPE = ("pattern", "minItems", "minProperties", "additionalProperties")  # the value can be checked further


def list_errors(document: documents.Document, most: int) -> list[tuple[int, Path, str]]:
    """Return line, path and message of all errors, ordered by line.

    Stops after `most` violations of the schema, and of the relations: each unknown key costs a search for the nearest
    known one, and each line a search in its mapping.
    """
    definitions: Mapping[str, Schema] = _VALIDATOR.schema["$defs"]
    errors = [(problem.line, problem.path, problem.message) for problem in document.problems]
    yaml_problems = {problem.path for problem in document.problems}
    violations = [*itertools.islice(_VALIDATOR.iter_errors(document.tree), most)]
    invalid: set[Path] = set()  # values that are replaced by placeholders to check the relations
    doubtful: set[Path] = set()  # paths that relations should not depend on
    for violation in violations:
        path: Path = tuple(violation.absolute_path)
        if violation.validator not in _OF_RIGHT_TYPE:
            if path in invalid:
                continue  # 0.5 is no whole number: that it is also out of range says nothing new
            invalid.add(path)
        message, intended = _describe(violation, document.get_source_text(path), definitions)
        doubtful |= {path, (*path[:-1], intended)} if intended else {path}
        if path not in yaml_problems:
            errors.append((document.find_line(path), path, message))
    if len(violations) < most:  # otherwise there may be further invalid values, of which `_build` would not know
        findings = (
            (document.find_line(finding.path), finding.path, finding.message)
            for finding in checks.check(_build(model.PolicyDocument, document.tree, (), invalid))
            if not any(_covers(path, part) for path in doubtful for part in (finding.path, *finding.rests_on))
        )
        errors += itertools.islice(findings, most)
    return sorted(dict.fromkeys(errors), key=lambda error: (error[0], [(str(type(step)), step) for step in error[1]]))


def _covers(path: Path, part: Path) -> bool:
    """True if `part` (in which "*" matches any step) lies at or below `path`."""
    return len(path) <= len(part) and all(pattern in ("*", step) for step, pattern in zip(path, part, strict=False))


# --- messages ---------------------------------------------------------------------------------------------


def _describe(violation: Violation, written: str | None, definitions: Mapping[str, Schema]) -> tuple[str, str | None]:
    """Return the message about a value, and for an unknown key the key that was probably intended.

    `written` is the text of the value in the document.
    """
    value, allowed = violation.instance, _resolve(violation.schema, definitions)
    expected, shown = _describe_allowed(allowed), _format_value(value)
    match violation.validator:
        case "required":
            return f"is missing; it must be {expected}", None
        case "additionalProperties":
            return _describe_unknown(violation.absolute_path[-1], value, allowed["properties"], definitions)
        case "minItems" | "minProperties":
            message = "is empty; it needs at least one entry"
        case "maxItems" | "maxProperties":
            message = f"has {len(value)} entries; the limit is {violation.validator_value}: remove some"
        case "pattern":
            message = f"{shown} is not {expected}"
        case "type" | "enum" if value is None:
            message = f"has no value; it must be {expected}"
        case "type":
            message = _describe_type(value, written, allowed, expected)
        case "enum" if isinstance(value, bool) and written is not None:
            message = f"YAML reads {written} as true or false; it must be {expected}"
        case "enum":
            nearest = _find_nearest(value, _list_words(allowed)) if isinstance(value, str) else None
            advice = f"; did you mean {nearest}?" if nearest and len(_list_words(allowed)) > 1 else ""
            message = f"{shown} is not allowed; it must be {expected}{advice}"
        case _:
            message = f"{shown} is out of range; it must be {expected}"
    return message, None


def _describe_unknown(
    key: str, section: Mapping[str, Any], known: Mapping[str, Schema], definitions: Mapping[str, Schema]
) -> tuple[str, str | None]:
    nearest = _find_nearest(key, known, _CLOSE)
    places = [_describe_place(name, definitions) for name, other in definitions.items() if key in _list_keys(other)]
    if nearest is None and not places:
        nearest = _find_nearest(key, known)
    if nearest is not None:
        advice = f"did you mean {nearest}?"
    elif places:
        advice = f"it belongs {' or '.join(places)}"
    else:
        advice = f"remove it, or use one of: {', '.join(known)}"
    return f"is not a known key; {advice}", None if nearest in section else nearest


def _describe_type(value: Any, written: str | None, allowed: Schema, expected: str) -> str:
    """Return the message about a value of the wrong YAML type."""
    kinds, shown = _list_types(allowed), _format_value(value)
    if "string" in kinds and isinstance(value, bool | int | float) and written is not None:
        noun = "true or false" if isinstance(value, bool) else "a number"
        return f"YAML reads {written} as {noun}, but text is expected; quote it: {json.dumps(written)}"
    if isinstance(value, str) and _is_readable_as(kinds, value):
        return f"{shown} is text; it must be {expected}: remove the quotes"
    if "array" in kinds and not isinstance(value, dict):
        return f"{shown} is not a list; write [{shown.strip(chr(34))}]"
    return f"{shown} is not {expected}"


def _is_readable_as(kinds: AbstractSet[str], text: str) -> bool:
    if "boolean" in kinds:
        return text.lower() in ("true", "false", "yes", "no", "on", "off")
    number = r"[+-]?\d+(\.\d+)?" if "number" in kinds else r"[+-]?\d+"
    return not kinds.isdisjoint({"integer", "number"}) and re.fullmatch(number, text) is not None


def _describe_allowed(allowed: Schema) -> str:
    """Return the allowed values, as the end of "it must be ..."."""
    if words := _list_words(allowed):
        return words[0] if len(words) == 1 else f"one of: {', '.join(words)}"
    if "patternErrorMessage" in allowed:
        return str(allowed["patternErrorMessage"])
    kinds = " or ".join(_TYPES[kind] for kind in _TYPES if kind in _list_types(allowed))
    above = f" above {allowed['exclusiveMinimum']}" if "exclusiveMinimum" in allowed else ""
    least = f" from {allowed['minimum']}" if "minimum" in allowed else ""
    most = f" to {allowed['maximum']}" if least else f" and at most {allowed['maximum']}" if above else ""
    return f"{kinds}{above}{least}{most}"


def _describe_place(section: str, definitions: Mapping[str, Schema]) -> str:
    """Return where a section is in the document: "under nccl", "at the top level"."""
    reference = json.dumps(f"#/$defs/{section}")
    for definition in definitions.values():
        for key, value in _list_keys(definition).items():
            if reference in json.dumps(value):
                return f"under {key}"
    return "at the top level"


def _format_value(value: Any) -> str:
    """Return a value for a message: escaped and truncated."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return texts.abbreviate(json.dumps(value), _MAX_SHOWN)


def _find_nearest(word: str, allowed: Iterable[str], cutoff: float = _FAR) -> str | None:
    """Return the allowed word that was probably intended, ignoring case; None if none is similar."""
    folded = {choice.casefold(): choice for choice in allowed}
    close = difflib.get_close_matches(word[:_MAX_SHOWN].casefold(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def _resolve(value: Schema, definitions: Mapping[str, Schema]) -> Schema:
    reference = value.get("$ref") or value.get("anyOf", [{}])[0].get("$ref")
    return value if reference is None else definitions[reference.rpartition("/")[2]]


def _list_words(value: Schema) -> list[str]:
    return [str(word) for word in value.get("enum", ()) if word is not None]


def _list_types(value: Schema) -> set[str]:
    kinds = value.get("type", "string")
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _list_keys(definition: Schema) -> Mapping[str, Schema]:
    keys: Mapping[str, Schema] = definition.get("properties", {})
    return keys


# --- jsonschema's validator, with one error for each path -------------------------------------------------


def _check_required(_: Any, required: Iterable[str], value: Any, section: Schema) -> Iterator[Violation]:
    for key in required if isinstance(value, dict) else ():
        if key not in value:
            yield exceptions.ValidationError("", path=(key,), schema=section["properties"][key])


def _check_others(validator: Any, others: Any, value: Any, section: Schema) -> Iterator[Violation]:
    if others is not False:
        yield from validators.Draft202012Validator.VALIDATORS["additionalProperties"](validator, others, value, section)
    elif isinstance(value, dict):
        yield from (exceptions.ValidationError("", path=(key,)) for key in value if key not in section["properties"])


def _check_keys(validator: Any, form: Schema, value: Any, _: Schema) -> Iterator[Violation]:
    for key in value if isinstance(value, dict) else ():
        yield from validator.descend(key, form, path=key)


def _check_pattern(_: Any, pattern: str, value: Any, __: Schema) -> Iterator[Violation]:
    if isinstance(value, str) and re.fullmatch(pattern, value) is None:  # Python's $ matches before a final newline
        yield exceptions.ValidationError("")


def _check_section(validator: Any, choices: Iterable[Schema], value: Any, _: Schema) -> Iterator[Violation]:
    if value is not None:
        yield from validator.descend(value, next(iter(choices)))  # the other is null


_VALIDATOR: Any = validators.extend(  # type: ignore[no-untyped-call]
    validators.Draft202012Validator,
    {
        "required": _check_required,
        "additionalProperties": _check_others,
        "propertyNames": _check_keys,
        "pattern": _check_pattern,
        "anyOf": _check_section,
    },
    # 3.0 is no whole number, which msgspec rejects
    type_checker=validators.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)(schema.build())


# --- the document without its errors ----------------------------------------------------------------------


def _build(kind: Any, value: Any, path: Path, invalid: AbstractSet[Path]) -> Any:
    """Return a value of the model's type `kind`, with defaults and placeholders for those that are `invalid`.

    Texts of the wrong form are accepted. The result is used to find further errors, and never put in force.
    """
    if path in invalid:
        return _make_placeholder(kind)
    if isinstance(kind, type) and issubclass(kind, model.Section):
        parts = {}
        for field, part_kind in _list_fields(kind):
            part, below = value.get(field.encode_name), (*path, field.encode_name)
            if part is not None and (below not in invalid or field.required):
                parts[field.name] = _build(part_kind, part, below, invalid)
            elif field.required:
                parts[field.name] = _make_placeholder(part_kind)
        return kind(**parts)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_build(arguments[0], item, (*path, index), invalid) for index, item in enumerate(value))
    if origin is dict:
        items = {key: item for key, item in value.items() if item is not None or (*path, key) in invalid}
        return {key: _build(arguments[1], item, (*path, key), invalid) for key, item in items.items()}
    if origin in (types.UnionType, typing.Union):
        return _build(arguments[0], value, path, invalid)
    return model.Transport(value) if kind is model.Transport else documents.remove_nulls(value)


def _make_placeholder(kind: Any) -> Any:
    """Return the most neutral value of a type: the last of several words (tcp), otherwise nothing, 0 or empty."""
    if isinstance(kind, type) and issubclass(kind, model.Section):
        return kind(**{field.name: _make_placeholder(part) for field, part in _list_fields(kind) if field.required})
    if kind is model.Transport:
        return model.Transport.TCP
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)[-1]
    if typing.get_origin(kind) is types.UnionType:
        return _make_placeholder(typing.get_args(kind)[0])
    return (typing.get_origin(kind) or kind)()


@functools.cache
def _list_fields(section: type[model.Section]) -> tuple[tuple[msgspec.structs.FieldInfo, Any], ...]:
    """Return the fields of a section, each with its type without annotations."""
    hints = typing.get_type_hints(section)
    return tuple((field, hints[field.name]) for field in msgspec.structs.fields(section))
