"""Lists the errors of an invalid policy for its author: each with the value, what is allowed, and the fix.

jsonschema finds the values that violate the schema, and this module writes the messages. In a policy without violations
`railwright.fabric.policy.checks` then finds keys that contradict each other.
"""

import difflib
import functools
import itertools
import json
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
    violations = _build_validator().iter_errors(document.tree)
    located = [*itertools.islice(itertools.chain.from_iterable(map(_locate_keys, violations)), most)]
    for path, violation in sorted(located, key=lambda one: one[1].validator != "type"):
        if path in reported and violation.validator != "pattern":
            continue  # 0.5 is no whole number: that it is also out of range says nothing new
        reported.add(path)
        written = getattr(document.find_node(path), "value", None)
        errors.append((document.find_line(path), path, _describe_violation(violation, path, written)))
    if not errors:
        policy = msgspec.convert(documents.remove_nulls(document.tree), model.PolicyDocument)
        errors = [
            (document.find_line(finding.path), finding.path, finding.message)
            for finding in itertools.islice(checks.find_violations(policy), most)
        ]
    return sorted(dict.fromkeys(errors), key=lambda error: (error[0], [(str(type(step)), step) for step in error[1]]))


def _locate_keys(violation: Violation) -> Iterator[tuple[Path, Violation]]:
    """Yield the violation with the path of each missing or unknown key: jsonschema gives only the mapping's path."""
    path, value = tuple(violation.absolute_path), violation.instance
    match violation.validator:
        case "required":
            keys = [key for key in violation.validator_value if key not in value]
        case "additionalProperties":
            keys = [key for key in value if key not in violation.schema["properties"]]
        case _ if "propertyNames" in violation.absolute_schema_path:
            keys = [value]
        case _:
            yield path, violation
            return
    yield from (((*path, key), violation) for key in keys)


def _describe_violation(violation: Violation, path: Path, written: Any) -> str:
    """Return the message about a violation at `path`. `written` is the value as the document has it."""
    value, allowed = violation.instance, violation.schema
    match violation.validator:
        case "required":
            return f"is missing; it must be {_describe_allowed(allowed['properties'][path[-1]])}"
        case "additionalProperties":
            return _describe_unknown(path, allowed)
        case "minItems" | "minProperties":
            return "is empty; it needs at least one entry"
        case "maxItems" | "maxProperties":
            return f"has {len(value)} entries; the limit is {violation.validator_value}: remove some"
        case _ if value is None:
            return f"has no value; it must be {_describe_allowed(allowed)}"
        case _:
            return _describe_value(violation, written)


def _describe_value(violation: Violation, written: Any) -> str:
    """Return the value, what is allowed in its place, and the likeliest fix."""
    value, allowed = violation.instance, violation.schema
    words, kinds = _list_allowed_words(allowed), _list_allowed_types(allowed)
    shown, fix = _format_value(value), ""
    if violation.validator in ("type", "enum") and "string" in kinds and isinstance(value, bool | int | float):
        shown = f"{written}, which YAML reads as {'true or false' if isinstance(value, bool) else 'a number'},"
        fix = f"quote it: {json.dumps(written)}" if not words or written in words else ""
    elif isinstance(value, str) and len(words) > 1:
        nearest = _find_nearest(value, words)
        fix = f"did you mean {nearest}?" if nearest else ""
    elif isinstance(value, str) and kinds.isdisjoint(("string", "array", "object")):
        fix = "write one without quotes"
    elif "array" in kinds and not isinstance(value, dict):
        fix = f"write [{shown.strip(chr(34))}]"
    elif kinds & {"array", "object"} and "examples" in allowed:
        fix = f"write one such as {json.dumps(allowed['examples'][0])}"
    elif isinstance(value, dict):  # such as matchLabels in a map of labels
        fix = "write the value without a level below it"
    return f"{shown} is not {_describe_allowed(allowed)}{fix and f'; {fix}'}"


def _describe_unknown(path: Path, section: Schema) -> str:
    key, known = path[-1], section["properties"]
    nearest = _find_nearest(key, known)
    advice = f"did you mean {nearest}?" if nearest else f"remove it, or use one of: {', '.join(known)}"
    if path[2:-1] == ("nccl",):
        advice += "; to set an NCCL variable that has no key, use env of the fabric"
    return f"is not a known key; {advice}"


def _describe_allowed(allowed: Schema) -> str:
    """Return the allowed values, as the end of "it must be ..."."""
    if words := _list_allowed_words(allowed):
        return words[0] if len(words) == 1 else f"one of: {', '.join(words)}"
    if "patternErrorMessage" in allowed:
        return str(allowed["patternErrorMessage"])
    kinds = " or ".join(_TYPES[kind] for kind in _TYPES if kind in _list_allowed_types(allowed))
    least = f" from {allowed['minimum']}" if "minimum" in allowed else ""
    return f"{kinds}{least} to {allowed['maximum']}" if "maximum" in allowed else f"{kinds}{least}"


def _format_value(value: Any) -> str:
    """Return a value for a message: escaped, truncated, and only its type if it is a mapping or list."""
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


def _list_allowed_words(value: Schema) -> list[str]:
    return [str(word) for word in value.get("enum", ()) if word is not None]


def _list_allowed_types(value: Schema) -> set[str]:
    kinds = value.get("type", "string")
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _check_pattern(_: Any, pattern: str, value: Any, __: Schema) -> Iterator[Violation]:
    if isinstance(value, str) and re.fullmatch(pattern, value) is None:  # Python's $ matches before a final newline
        yield exceptions.ValidationError("")


@functools.cache
def _build_validator() -> Any:
    """Return jsonschema's validator of the published schema, as strict about texts and numbers as msgspec."""
    published, standard = schema.build_schema(), validators.Draft202012Validator
    checker = standard.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)  # msgspec rejects 3.0
    strict: Any = validators.extend(standard, {"pattern": _check_pattern}, type_checker=checker)  # type: ignore[no-untyped-call]
    return strict(_inline_sections(published, published["$defs"]))


def _inline_sections(part: Any, sections: Mapping[str, Schema]) -> Any:
    """Return a part of the schema in which each $ref is replaced by the section that it names."""
    if isinstance(part, list):
        return [_inline_sections(item, sections) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inline_sections(sections[part["$ref"].rpartition("/")[2]], sections)
    if "anyOf" in part:  # a section or null
        section = _inline_sections(part["anyOf"][0], sections)
        return {**section, "type": ["object", "null"], **{key: part[key] for key in part if key != "anyOf"}}
    return {key: _inline_sections(value, sections) for key, value in part.items()}
