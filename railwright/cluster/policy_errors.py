"""Lists the errors of an invalid policy for its author: each with the value, what is allowed, and the fix.

jsonschema finds the values that violate the schema, and this module writes the messages. If there are none, `checks`
checks relations between keys.
"""

import difflib
import functools
import itertools
import json
import re
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


def list_errors(document: documents.Document, most: int) -> list[tuple[int, Path, str]]:
    """Return line, path and message of the errors, ordered by line.

    Stops after `most` errors of each kind, because each unknown key needs a search for the nearest known one.
    """
    errors = [(problem.line, problem.path, problem.message) for problem in document.problems]
    reported = {problem.path for problem in document.problems}
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
    value, allowed = violation.instance, _resolve(violation.schema)
    expected, shown = _describe_allowed(allowed), _format_value(value)
    match violation.validator:
        case "required":
            return f"is missing; it must be {expected}"
        case "additionalProperties":
            return _describe_unknown(path)
        case "minItems" | "minProperties":
            return "is empty; it needs at least one entry"
        case "maxItems" | "maxProperties":
            return f"has {len(value)} entries; the limit is {violation.validator_value}: remove some"
        case "pattern":
            return f"{shown} is not {expected}"
        case "type" | "enum" if value is None:
            return f"has no value; it must be {expected}"
        case "type":
            return _describe_type(value, path, written, allowed)
        case "enum" if isinstance(value, bool) and written is not None:
            return f"YAML reads {written} as true or false; it must be {expected}"
        case "enum":
            nearest = _find_nearest(value, _list_words(allowed)) if isinstance(value, str) else None
            advice = f"; did you mean {nearest}?" if nearest and len(_list_words(allowed)) > 1 else ""
            return f"{shown} is not allowed; it must be {expected}{advice}"
        case _:
            return f"{shown} is out of range; it must be {expected}"


def _describe_unknown(path: Path) -> str:
    key, section = path[-1], _resolve(_find_schema(path[:-1]))
    known, definitions = _list_keys(section), _build_validator().schema["$defs"]
    nearest = _find_nearest(key, known, _CLOSE)
    places = [_describe_place(name) for name, other in definitions.items() if key in _list_keys(other)]
    if nearest is None and not places:
        nearest = _find_nearest(key, known)
    if nearest is not None:
        advice = f"did you mean {nearest}?"
    elif places:
        advice = f"it belongs {' or '.join(places)}"
    else:
        advice = f"remove it, or use one of: {', '.join(known)}"
    if section == definitions["Nccl"]:
        advice += "; env of the fabric sets variables of NCCL that have no key"
    return f"is not a known key; {advice}"


def _describe_place(section: str) -> str:
    """Return where a section is in the document: "under nccl", "at the top level"."""
    reference = json.dumps(f"#/$defs/{section}")
    for definition in _build_validator().schema["$defs"].values():
        for key, value in _list_keys(definition).items():
            if reference in json.dumps(value):
                return f"under {key}"
    return "at the top level"


def _describe_type(value: Any, path: Path, written: str | None, allowed: Schema) -> str:
    """Return the message about a value of the wrong YAML type."""
    kinds, shown, expected = _list_types(allowed), _format_value(value), _describe_allowed(allowed)
    if "string" in kinds and isinstance(value, bool | int | float) and written is not None:
        noun = "true or false" if isinstance(value, bool) else "a number"
        return f"YAML reads {written} as {noun}, but text is expected; quote it: {json.dumps(written)}"
    if isinstance(value, str) and _is_readable_as(kinds, value):
        return f"{shown} is text; it must be {expected}: remove the quotes"
    if "array" in kinds and not isinstance(value, dict):
        return f"{shown} is not a list; write [{shown.strip(chr(34))}]"
    message = f"{shown} is not {expected}"
    parent = _find_schema(path[:-1])
    if isinstance(value, dict | list) and "examples" in parent:  # of a map: one level too many, such as matchLabels
        return f"{message}; write the entries of {path[-2]} directly, such as {json.dumps(parent['examples'][0])}"
    examples = _find_schema(path).get("examples", ()) if kinds & {"array", "object"} else ()
    return f"{message}; write one such as {json.dumps(examples[0])}" if examples else message


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
    least = f" from {allowed['minimum']}" if "minimum" in allowed else ""
    return f"{kinds}{least} to {allowed['maximum']}" if "maximum" in allowed else f"{kinds}{least}"


def _format_value(value: Any) -> str:
    """Return a value for a message: escaped and truncated."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return texts.abbreviate(json.dumps(value), _MAX_SHOWN)


def _find_nearest(word: Any, allowed: Iterable[str], cutoff: float = _FAR) -> str | None:
    """Return the allowed word that was probably intended, ignoring case; None if none is similar."""
    folded = {choice.casefold(): choice for choice in allowed}
    close = difflib.get_close_matches(str(word)[:_MAX_SHOWN].casefold(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


# --- the schema -------------------------------------------------------------------------------------------


def _find_schema(path: Path) -> Schema:
    """Return the schema of the value at a path of keys that are known."""
    found: Schema = _build_validator().schema
    for step in path:
        section = _resolve(found)
        below = section["items"] if isinstance(step, int) else _list_keys(section).get(step)
        found = section["additionalProperties"] if below is None else below
    return found


def _resolve(value: Schema) -> Schema:
    """Return the definition that a schema refers to, also if the value may be null."""
    reference = value.get("$ref") or value.get("anyOf", [{}])[0].get("$ref")
    if reference is None:
        return value
    definition: Schema = _build_validator().schema["$defs"][reference.rpartition("/")[2]]
    return definition


def _list_words(value: Schema) -> list[str]:
    return [str(word) for word in value.get("enum", ()) if word is not None]


def _list_types(value: Schema) -> set[str]:
    kinds = value.get("type", "string")
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _list_keys(definition: Schema) -> Mapping[str, Schema]:
    keys: Mapping[str, Schema] = definition.get("properties", {})
    return keys


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


def _check_section(validator: Any, choices: Iterable[Schema], value: Any, _: Schema) -> Iterator[Violation]:
    if value is not None:
        yield from validator.descend(value, next(iter(choices)))  # the other is null


@functools.cache
def _build_validator() -> Any:
    """Return jsonschema's validator, with an error for each path instead of one for all keys of a mapping."""
    checker = validators.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer",
        lambda _, value: isinstance(value, int) and not isinstance(value, bool),  # msgspec rejects 3.0
    )
    functions = {
        "required": _check_required,
        "additionalProperties": _check_others,
        "propertyNames": _check_keys,
        "pattern": _check_pattern,
        "anyOf": _check_section,
    }
    extended: Any = validators.extend(validators.Draft202012Validator, functions, type_checker=checker)  # type: ignore[no-untyped-call]
    return extended(schema.build())
