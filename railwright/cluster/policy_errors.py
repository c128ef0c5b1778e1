"""Lists the errors of an invalid policy for its author: each with the value, what is allowed, and the fix.

jsonschema finds the values that violate the schema, and this module writes the messages. If there are none, `checks`
checks relations between keys.
"""

import difflib
import functools
import itertools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
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
_TYPES: Mapping[str, str] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping (key: value)",
    "array": "a list",
}


def list_errors(document: documents.Document, most: int) -> list[tuple[int, Path, str]]:
    """Return line, path and message of the errors, ordered by line.

    Stops after `most` errors of each kind, because each unknown key needs a search for the nearest known one.
    """
    repeated = "the key is already on line {}; keep one of the two"
    errors = [(key.line, key.path, repeated.format(key.first_line)) for key in document.repeated[:most]]
    reported = {key.path for key in document.repeated}
    violations = [*itertools.islice(_build_validator().iter_errors(document.tree), most)]
    for violation in sorted(violations, key=lambda violation: violation.validator != "type"):
        path: Path = tuple(violation.absolute_path)
        if path in reported and violation.validator != "pattern":
            continue  # 0.5 is no whole number: that it is also out of range says nothing new
        reported.add(path)
        errors.append((document.find_line(path), path, _describe(violation, path, document.get_source_text(path))))
    if not errors:
        policy = msgspec.convert(documents.remove_nulls(document.tree), model.PolicyDocument)
        errors = [
            (document.find_line(finding.path), finding.path, finding.message)
            for finding in itertools.islice(checks.check(policy), most)
        ]
    return sorted(dict.fromkeys(errors), key=lambda error: (error[0], [(str(type(step)), step) for step in error[1]]))


def _describe(violation: Violation, path: Path, written: str | None) -> str:
    """Return the message about a value at `path`. `written` is the text of the value in the document."""
    value, allowed = violation.instance, violation.schema
    expected, shown = _describe_allowed(allowed), _format_value(value)
    match violation.validator:
        case "required":
            return f"is missing; it must be {expected}"
        case "additionalProperties":
            return _describe_unknown(path, allowed)
        case "minItems" | "minProperties":
            return "is empty; it needs at least one entry"
        case "maxItems" | "maxProperties":
            return f"has {len(value)} entries; the limit is {violation.validator_value}: remove some"
        case "pattern":
            return f"{shown} is not {expected}"
        case "type" | "enum" if value is None:
            return f"has no value; it must be {expected}"
        case "type":
            return _describe_type(violation, path, written)
        case "enum" if isinstance(value, bool) and written is not None:
            return f"YAML reads {written} as true or false; it must be {expected}"
        case "enum":
            nearest = _find_nearest(value, _list_words(allowed)) if isinstance(value, str) else None
            advice = f"; did you mean {nearest}?" if nearest and len(_list_words(allowed)) > 1 else ""
            return f"{shown} is not allowed; it must be {expected}{advice}"
        case _:
            return f"{shown} is out of range; it must be {expected}"


def _describe_unknown(path: Path, section: Schema) -> str:
    key, known = path[-1], section["properties"]
    nearest = _find_nearest(key, known)
    advice = f"did you mean {nearest}?" if nearest else f"remove it, or use one of: {', '.join(known)}"
    if path[2:-1] == ("nccl",):
        advice += "; to set an NCCL variable that has no key, use env of the fabric"
    return f"is not a known key; {advice}"


def _describe_type(violation: Violation, path: Path, written: str | None) -> str:
    """Return the message about a value of the wrong YAML type."""
    value, allowed = violation.instance, violation.schema
    kinds, shown, expected = _list_types(allowed), _format_value(value), _describe_allowed(allowed)
    if "string" in kinds and isinstance(value, bool | int | float) and written is not None:
        noun = "true or false" if isinstance(value, bool) else "a number"
        return f"YAML reads {written} as {noun}, but text is expected; quote it: {json.dumps(written)}"
    if isinstance(value, str) and kinds.isdisjoint(("array", "object")):
        return f"{shown} is text; it must be {expected}, without quotes"
    if "array" in kinds and not isinstance(value, dict):
        return f"{shown} is not a list; write [{shown.strip(chr(34))}]"
    message = f"{shown} is not {expected}"
    steps = [*violation.absolute_schema_path][:-2]
    parent: Schema = functools.reduce(operator.getitem, steps, _build_validator().schema)
    if isinstance(value, dict | list) and "examples" in parent:  # of a map: one level too many, such as matchLabels
        return f"{message}; write the entries of {path[-2]} directly, such as {json.dumps(parent['examples'][0])}"
    examples = allowed.get("examples") if kinds & {"array", "object"} else None
    return f"{message}; write one such as {json.dumps(examples[0])}" if examples else message


def _describe_allowed(allowed: Schema) -> str:
    """Return the allowed values, as the end of "it must be ..."."""
    if words := _list_words(allowed):
        return words[0] if len(words) == 1 else f"one of: {', '.join(words)}"
    if "patternErrorMessage" in allowed:
        return str(allowed["patternErrorMessage"])
    kinds = " or ".join(_TYPES[kind] for kind in _TYPES if kind in _list_types(allowed))
    least = f" from {allowed['minimum']}" if "minimum" in allowed else ""
    return f"{kinds}{least} to {allowed['maximum']}" if "maximum" in allowed else f"{kinds}{least}"


def _format_value(value: Any) -> str:
    """Return a value for a message: escaped and truncated."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return texts.truncate(json.dumps(value), _MAX_SHOWN)


def _find_nearest(word: Any, allowed: Iterable[str]) -> str | None:
    """Return the allowed word that was probably intended, ignoring case; None if none is similar."""
    folded = {choice.casefold(): choice for choice in allowed}
    close = difflib.get_close_matches(str(word)[:_MAX_SHOWN].casefold(), folded, n=1)
    return folded[close[0]] if close else None


# --- the schema -------------------------------------------------------------------------------------------


def _list_words(value: Schema) -> list[str]:
    return [str(word) for word in value.get("enum", ()) if word is not None]


def _list_types(value: Schema) -> set[str]:
    kinds = value.get("type", "string")
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _check_required(_: Any, required: Iterable[str], value: Any, section: Schema) -> Iterator[Violation]:
    for key in required if isinstance(value, dict) else ():
        if key not in value:
            yield exceptions.ValidationError("", path=(key,), schema=section["properties"][key])


def _check_others(validator: Any, others: Any, value: Any, section: Schema) -> Iterator[Violation]:
    """Yield unknown keys in the order of the document; jsonschema's own function has no order."""
    for key in value if isinstance(value, dict) else ():
        if key in section.get("properties", ()):
            continue
        if others is False:
            yield exceptions.ValidationError("", path=(key,))
        else:
            yield from validator.descend(value[key], others, path=key)


def _check_keys(validator: Any, form: Schema, value: Any, _: Schema) -> Iterator[Violation]:
    for key in value if isinstance(value, dict) else ():
        yield from validator.descend(key, form, path=key)


def _check_pattern(_: Any, pattern: str, value: Any, __: Schema) -> Iterator[Violation]:
    if isinstance(value, str) and re.fullmatch(pattern, value) is None:  # Python's $ matches before a final newline
        yield exceptions.ValidationError("")


@functools.cache
def _build_validator() -> Any:
    """Return jsonschema's validator, with an error for each path instead of one for all keys of a mapping."""
    published = schema.build()
    checker = validators.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer",
        lambda _, value: isinstance(value, int) and not isinstance(value, bool),  # msgspec rejects 3.0
    )
    functions = {
        "required": _check_required,
        "additionalProperties": _check_others,
        "propertyNames": _check_keys,
        "pattern": _check_pattern,
    }
    extended: Any = validators.extend(validators.Draft202012Validator, functions, type_checker=checker)  # type: ignore[no-untyped-call]
    return extended(_inline(published, published["$defs"]))


def _inline(part: Any, sections: Mapping[str, Schema]) -> Any:
    """Return a part of the schema with the sections in place of the references to them."""
    if isinstance(part, list):
        return [_inline(item, sections) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inline(sections[part["$ref"].rpartition("/")[2]], sections)
    if "anyOf" in part:  # a section or null
        section = _inline(part["anyOf"][0], sections)
        return {**section, "type": ["object", "null"], **{key: part[key] for key in part if key != "anyOf"}}
    return {key: _inline(value, sections) for key, value in part.items()}
