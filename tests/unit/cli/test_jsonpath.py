"""`-o jsonpath=`: what a template prints, as kubectl prints it, and what is wrong with one that cannot be read."""

import json

import pytest

from railwright.cli import jsonpath
from railwright.cli.__main__ import main

GANGS = [
    {"name": "llama", "placed": 8, "size": 8, "labels": {"app.kubernetes.io/name": "x"}, "ranks": [{"pod": "a"}]},
    {"name": "moe", "placed": 0, "size": 12, "labels": {}, "ranks": [{"pod": "b"}, {"pod": "c"}], "best": 0.5},
]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{[*].name}", "llama moe"),
        ("{.*.name}", "llama moe"),
        ("gangs: {[0].name}, {[-1].name}", "gangs: llama, moe"),
        ("{[0:1].name}|{[1:].name}|{[:-1].name}", "llama|moe|llama"),
        ('{range [*]}{.name}{"\\t"}{.placed}/{.size}{"\\n"}{end}', "llama\t8/8\nmoe\t0/12\n"),
        ("{range [*]}{.name}:{range .ranks[*]} {.pod}{end};{end}", "llama: a;moe: b c;"),
        (r"{[0].labels.app\.kubernetes\.io/name}", "x"),
        ("{[0]['labels'][\"app.kubernetes.io/name\"]}", "x"),
        ("{[?(@.placed<8)].name}", "moe"),
        ('{[?(@.name=="llama")].size}', "8"),
        ("{[?(@.name!='llama')].size}", "12"),
        ("{[?(@.best)].name}", "moe"),
        ("{[?(@.placed>=@.size)].name}", "llama"),
        ("{[?(@.name<3)].name}", ""),
        ("{[*].best}", "0.5"),
        ("{[7].name}{.name}{[0].name.x}", ""),
        ("{range [*]}{$[0].name}{end}", "llamallama"),
        ("{[1].ranks}", '[{"pod":"b"},{"pod":"c"}]'),
        ("{'it''s'}", None),
        ("{@[0].placed}", "8"),
    ],
)
def test_a_template_prints(template, text):
    if text is None:
        with pytest.raises(ValueError, match="jsonpath template"):
            jsonpath.compile_template(template)
    else:
        assert jsonpath.compile_template(template)(GANGS) == text


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("items", "no expression in braces"),
        ("", "no expression in braces"),
        ("{.a", "brace without its counterpart"),
        (".a}", "brace without its counterpart"),
        ("{range [*]}{.a}", "{range} without {end}"),
        ("{.a}{end}", "{end} without {range}"),
        ("{a}", "a path begins with a dot or a bracket"),
        ("{..a}", "cannot read '..a'"),
        ("{[?(@.a=~'x')]}", "cannot read"),
        ("{[?(@.a==x)]}", "neither a path, a number nor quoted text"),
    ],
)
def test_a_template_that_cannot_be_read_is_wrong_usage(template, problem, capsys):
    with pytest.raises(ValueError, match=r"jsonpath template"):
        jsonpath.compile_template(template)
    assert main(["policy", "validate", "p.yaml", "-o", f"jsonpath={template}"]) == 2
    stderr = capsys.readouterr().err
    assert problem in stderr
    assert "usage: railwright policy validate" in stderr


def test_the_value_itself_is_its_json():
    assert json.loads(jsonpath.compile_template("{@}")(GANGS)) == GANGS
    assert json.loads(jsonpath.compile_template("{$}")(GANGS)) == GANGS


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{end}", "{end} without {range}; remove it, or write {range PATH} before it"),
        ("{range .a}x", "{range} without {end}; add {end} after what is to be repeated"),
        (
            "{.a",
            """brace without its counterpart at '{.a'; close each { with }, and quote a brace that is text: {"{"}""",
        ),
        (
            "{name}",
            "'name' is not a path; a path begins with a dot or a bracket: write '.name', or quote it if it is text",
        ),
        (
            "{.a[x]}",
            """cannot read '[x]' in '.a[x]'; steps are .field, ['field'], [0], [0:2], [*] and [?(@.field=="text")]""",
        ),
        (
            "{.a[?(@.b==c)]}",
            """'c' is neither a path, a number nor quoted text; write @.c for a field, or "c" for text""",
        ),
    ],
)
def test_the_message_of_an_invalid_template_names_the_place_and_the_fix(template, message):
    with pytest.raises(ValueError, match=r"jsonpath template") as error:
        jsonpath.compile_template(template)
    assert str(error.value) == f"jsonpath template: {message}"
