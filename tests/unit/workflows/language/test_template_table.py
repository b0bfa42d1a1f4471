"""Templates: each case is a value, and what it becomes in one scope."""

from __future__ import annotations

import contextlib
import marshal
import time
from typing import Any

import pytest

from leadrope.workflows.language import template_syntax, templates

SCOPE: dict[str, Any] = {
    "name": "Ada",
    "n": 3,
    "half": 0.5,
    "yes": True,
    "nothing": None,
    "empty": "",
    "list": ["a", "b", {"c": [10, 20]}],
    "map": {"key": "value", "with-dash": 1, "with space": 2, "7": "seven", "null": None, "in": {"deep": {"er": "x"}}},
    "step-1": {"result": {"issues": ["one", "two"], "score": 6}, "stdout": '{"ok": true, "rows": [{"id": 5}]}'},
    "text_list": "[1, 2, 3]",
    "broken_json": '{"a": ',
    "spaced_json": '  \n {"a": {"b": 1}}',
    "nested_json": {"inner": '{"again": "{\\"last\\": 1}"}'},
    "number_text": "12",
    "word": "key",
    "__index__": 1,
    "item": {"path": "src/a.py"},
    "umlaut": {"größe": "ä"},
    "code": "${name}",
    "doomed": templates.FailedOutputs({"stdout": "half", "error": {"message": "exit 1"}}),
    "lost": templates.FailedOutputs({"stdout": "half", "error": {"message": "exit 2"}}, is_readable=False),
    "each": {
        "results": [
            {"stdout": "a", "item": {"n": 1}},
            templates.FailedOutputs({"item": {"n": 2}, "error": {"message": "no"}}),
            {"stdout": "c", "item": {"n": 3}},
        ]
    },
}

RESOLVED: list[tuple[Any, Any]] = [
    # alone: the type stays
    ("${name}", "Ada"),
    ("${n}", 3),
    ("${half}", 0.5),
    ("${yes}", True),
    ("${nothing}", None),
    ("${empty}", ""),
    ("${list}", ["a", "b", {"c": [10, 20]}]),
    ("${ name }", "Ada"),
    ("${step-1.result}", {"issues": ["one", "two"], "score": 6}),
    # paths
    ("${step-1.result.issues[0]}", "one"),
    ("${step-1.result.issues[1]}", "two"),
    ("${step-1.result.issues[-1]}", "two"),
    ("${step-1.result.issues.0}", "one"),
    ("${list[2].c[1]}", 20),
    ("${list[ 0 ]}", "a"),
    ("${map.with-dash}", 1),
    ('${map["with space"]}', 2),
    ("${map['with space']}", 2),
    ("${map.7}", "seven"),
    ("${map[7]}", "seven"),
    ("${map.null}", None),
    ("${map.in.deep.er}", "x"),
    ('${umlaut["größe"]}', "ä"),
    # templates in brackets
    ("${list[${__index__}]}", "b"),
    ("${map[${word}]}", "value"),
    ("${list[${missing ?? 0}]}", "a"),
    # JSON in text
    ("${step-1.stdout.ok}", True),
    ("${step-1.stdout.rows[0].id}", 5),
    ("${text_list[2]}", 3),
    ("${spaced_json.a.b}", 1),
    ("${nested_json.inner.again.last}", 1),
    ("${step-1.stdout}", '{"ok": true, "rows": [{"id": 5}]}'),
    # in text
    ("Hi ${name}!", "Hi Ada!"),
    ("${name}${n}", "Ada3"),
    ("n=${n}, half=${half}, yes=${yes}", "n=3, half=0.5, yes=true"),
    ("[${nothing}]", "[]"),
    ("l: ${list}", 'l: ["a", "b", {"c": [10, 20]}]'),
    ("m: ${umlaut}", 'm: {"größe": "ä"}'),
    ("${name} ", "Ada "),
    ("a\n${n}\nb", "a\n3\nb"),
    # what else there is
    ("${missing ?? name}", "Ada"),
    ("${missing ?? map.gone ?? n}", 3),
    ('${missing ?? "literal"}', "literal"),
    ("${missing ?? 'literal'}", "literal"),
    ("${missing ?? -1.5e2}", -150.0),
    ("${missing ?? 7}", 7),
    ("${missing ?? true}", True),
    ("${missing ?? null}", None),
    ('${missing ?? "with \\"quotes\\" and } brace"}', 'with "quotes" and } brace'),
    ("${nothing ?? name}", None),
    ("${empty ?? name}", ""),
    ("${map.null ?? name}", None),
    ("${list[9] ?? list[0]}", "a"),
    ("${broken_json.a ?? n}", 3),
    ("x${missing??name}x", "xAdax"),
    # lists and objects that are written out
    ("${missing ?? []}", []),
    ("${missing ?? {}}", {}),
    ('${missing ?? [1, {"a": "}"}] }', [1, {"a": "}"}]),
    ("${ [] }", []),
    ("n: ${missing ?? {}}", "n: {}"),
    # every item
    ("${list[2].c[*]}", [10, 20]),
    ("${text_list[*]}", [1, 2, 3]),
    ("${ text_list[ * ] }", [1, 2, 3]),
    ("${step-1.stdout.rows[*].id}", [5]),
    ("${each.results[*].stdout}", ["a", "c"]),
    ("${each.results[*].item.n}", [1, 3]),
    ("${each.results[1].item.n}", 2),
    ("${each.results[1]}", {"item": {"n": 2}, "error": {"message": "no"}}),
    ("${doomed}", {"stdout": "half", "error": {"message": "exit 1"}}),
    ("said: ${each.results[*].stdout}", 'said: ["a", "c"]'),
    ("${missing[*].x ?? []}", []),
    ("${list[*].c ?? 0}", 0),
    ("${map[*] ?? 1}", 1),
    # steps that failed
    ("${doomed.stdout}", "half"),
    ("${doomed.stdout ?? name}", "Ada"),
    ("${name ?? doomed.stdout}", "Ada"),
    ("${doomed.error.message ?? name}", "exit 1"),
    ("${lost.error.message}", "exit 2"),
    ("${lost.error.message ?? name}", "exit 2"),
    ("${list[${lost.stdout ?? 0}]}", "a"),
    # escapes
    ("$${name}", "${name}"),
    ("a $${name} b ${name}", "a ${name} b Ada"),
    ("$$${name}", "$${name}"),
    ("$${", "${"),
    ("$name $ {name} $(name) $$", "$name $ {name} $(name) $$"),
    ("100$", "100$"),
    # values are never read again
    ("${code}", "${name}"),
    ("<${code}>", "<${name}>"),
    # whole values
    ({"a": "${n}", "b": ["${name}", {"c": "${item.path}"}], "d": 1}, {"a": 3, "b": ["Ada", {"c": "src/a.py"}], "d": 1}),
    ([], []),
    (None, None),
    (5, 5),
    ({"${name}": 1}, {"${name}": 1}),
]

UNRESOLVED: list[tuple[str, str, str | None]] = [
    # template, a part of the reason, suggestion
    ("${nam}", "nothing is called 'nam'", "name"),
    ("${step_1.result}", "nothing is called 'step_1'", "step-1.result"),
    ("${step-1.result.isues}", "step-1.result has no 'isues'", "step-1.result.issues"),
    ("${step-1.reslt.issues[0]}", "step-1 has no 'reslt'", "step-1.result"),
    ("${list[9]}", "list has 3 items and no [9]", None),
    ("${list.first}", "list is a list, and 'first' is not an index", None),
    ("${list[-4]}", "no [-4]", None),
    ("${n.x}", "n is 3 and has no 'x'", None),
    ("${nothing.x}", "nothing is null and has no 'x'", None),
    ("${broken_json.a}", "a text that is not JSON", None),
    ("${number_text.a}", "a text that is not JSON", None),
    ("${map[${list}]}", "neither a key nor an index", None),
    ("${map[${yes}]}", "neither a key nor an index", None),
    ("${list[${gone}]}", "nothing is called 'gone'", None),
    ("${gone ?? nam}", "nothing is called 'nam'", "name"),
    ("text ${nam} text", "nothing is called 'nam'", "name"),
    ("${map[*]}", "map is a map, and `[*]` takes every item of a list", None),
    ("${n[*]}", "n is 3, and `[*]` takes every item", None),
    ("${list[*].c}", "list[0] is a text that is not JSON and has no 'c'", None),
    ("${each.results[*].sdout}", "each.results[0] has no 'sdout'", "each.results[0].stdout"),
    ("${doomed.stdout ?? lost.stdout}", "the step 'lost' failed", None),
    ("${lost.stdout}", "the step 'lost' failed", None),
    ("${lost}", "the step 'lost' failed", None),
]

BROKEN = [
    "${",
    "${}",
    "${name",
    "${name.}",
    "${name..x}",
    "${.x}",
    "${list[]}",
    "${list[0}",
    "${list[a]}",
    "${list[0.5]}",
    "${a ?? }",
    "${a ? b}",
    "${VAR:-default}",
    "${#array[@]}",
    "${1abc}",
    '${a ?? "open}',
    '${a ?? "bad \\x escape"}',
    "${a b}",
    "${a + b}",
    "${a ?? [1, }",
    "${a ?? {a: 1}}",
    "${a ?? [NaN]}",
    "${a ?? [" + "0, " * 2000 + "0]}",
    "${a[**]}",
    "${a[*}",
    "${*}",
    "${a.*}",
    "${__import__('os')}",
    "${a" + "[${a" * 20 + "]}" * 20 + "}",
]


@pytest.mark.parametrize(("value", "expected"), RESOLVED)
def test_resolves(value: Any, expected: Any) -> None:
    found = templates.resolve(value, SCOPE)
    assert found == expected
    assert type(found) is type(expected)
    marshal.dumps(found)  # plain values, as the processes that run commands are sent them


@pytest.mark.parametrize("text", ["${each}", "${each.results}", "${doomed}"])
def test_what_failed_is_a_plain_map_to_whoever_gets_it(text: str) -> None:
    assert marshal.loads(marshal.dumps(templates.resolve(text, SCOPE))) == templates.resolve(text, SCOPE)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("it is ${yes}", "it is True"),
        ("${yes}", True),
        ("${list}", ["a", "b", {"c": [10, 20]}]),
        ("l: ${list} ${n} ${nothing}", 'l: ["a", "b", {"c": [10, 20]}] 3 '),
    ],
)
def test_a_truth_in_a_text_of_a_pflow_file_is_pythons(written: str, expected: Any) -> None:
    assert templates.resolve(written, {**SCOPE, templates.DIALECT: "pflow"}) == expected


def test_the_dialect_is_no_name() -> None:
    with pytest.raises(templates.Unresolved) as caught:
        templates.resolve("${gone}", {"a": 1, templates.DIALECT: "pflow"})
    assert caught.value.missing[0].available == ("a",)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${text_list}", "[1, 2, 3]"),
        ({"a": "${text_list}"}, {"a": [1, 2, 3]}),
        ({"a": ["${text_list}", "x ${text_list}"]}, {"a": [[1, 2, 3], "x [1, 2, 3]"]}),
        (["${number_text}", "${broken_json}", "[1]"], ["12", '{"a": ', "[1]"]),
        ({"a": "${missing ?? text_list}"}, {"a": [1, 2, 3]}),
        ({"a": '${text_list}${""}'}, {"a": "[1, 2, 3]"}),
    ],
)
def test_a_text_that_is_json_can_be_opened_inside_of_maps_and_lists(written: Any, expected: Any) -> None:
    assert templates.opened_inside(written, templates.resolve(written, SCOPE)) == expected


@pytest.mark.parametrize("text", ["${nothing}", "${map.null}", "${missing ?? null}", "${nothing ?? name}"])
def test_null_is_a_value(text: str) -> None:
    assert templates.resolve(text, SCOPE) is None


@pytest.mark.parametrize(("text", "reason", "suggestion"), UNRESOLVED)
def test_unresolved_names_the_template_and_what_was_probably_meant(
    text: str, reason: str, suggestion: str | None
) -> None:
    with pytest.raises(templates.Unresolved) as caught:
        templates.resolve({"here": [text]}, SCOPE)
    (missing,) = caught.value.missing
    assert reason in missing.reason
    assert missing.suggestion == suggestion
    assert missing.path == ("here", 0)
    assert missing.template in text
    assert missing.template in str(caught.value)


def test_unresolved_lists_what_is_there() -> None:
    with pytest.raises(templates.Unresolved) as caught:
        templates.resolve("${map.kee}", SCOPE)
    assert "key" in caught.value.missing[0].available


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("${map.kee}", templates.FALLBACK_HINT),
        ("${list[9]}", templates.FALLBACK_HINT),
        ("${HOME}", templates.ESCAPE_HINT),
        ("${HOME:-x}", templates.ESCAPE_HINT),
        ("${map.kee} ${map.x} ${HOME}", f"{templates.FALLBACK_HINT} {templates.ESCAPE_HINT}"),
    ],
)
def test_the_hint_is_for_what_is_missing(text: str, hint: str) -> None:
    with pytest.raises(templates.Unresolved) as caught:
        templates.resolve(text, SCOPE)
    assert caught.value.hint == hint


def test_all_missing_templates_are_told_at_once() -> None:
    with pytest.raises(templates.Unresolved) as caught:
        templates.resolve({"a": "${x1} and ${x2}", "b": ["${x3}"]}, SCOPE)
    assert [one.template for one in caught.value.missing] == ["${x1}", "${x2}", "${x3}"]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_template_is_an_error_and_no_text(text: str) -> None:
    with pytest.raises(template_syntax.SyntaxProblem):
        template_syntax.parse(text)
    with pytest.raises(templates.Unresolved):
        templates.resolve(text, SCOPE)
    assert templates.broken([text])[0].path == (0,)


def test_references_say_what_a_value_needs() -> None:
    found = templates.references({"p": "${a.x[0] ?? b} and ${list[${i}].y}", "q": "${c}", "r": "$${d}"})
    assert [(one.root, one.parts, one.has_fallback, one.is_alone, one.path) for one in found] == [
        ("a", ("x", 0), True, False, ("p",)),
        ("b", (), False, False, ("p",)),
        ("list", (), False, False, ("p",)),
        ("i", (), False, False, ("p",)),
        ("c", (), False, True, ("q",)),
    ]


@pytest.mark.parametrize("text", ["plain", "${a}", "$${a}", "$$${a}", "a $${b} ${c ?? 'x'}", "${", "$", "$$", ""])
def test_an_escaped_text_resolves_to_itself(text: str) -> None:
    assert templates.resolve(templates.escaped(text), {}) == text


@pytest.mark.parametrize("value", [None, False, 0, "", " ", "false", "No", "0", [], {}])
def test_false(value: Any) -> None:
    assert not templates.is_true(value)


@pytest.mark.parametrize("value", [True, 1, "yes", "x", [0], {"a": 1}])
def test_true(value: Any) -> None:
    assert templates.is_true(value)


@pytest.mark.parametrize(
    "piece", ["${", "$${", "${a", "${a[", "${a[${", '${a ?? "', "${'", "${n}", "${big.k}", "}", "${a[${a[${a[${"]
)
def test_long_texts_take_linear_time(piece: str) -> None:
    """Ten times the text takes about ten times as long; quadratic would be a hundred times.

    By the processor's time of this thread, and the best of several: other work on the machine must not count.
    """

    def seconds(count: int) -> float:
        text = piece * count
        best = 9.0
        for _ in range(7):
            start = time.thread_time()
            with contextlib.suppress(templates.Unresolved):
                templates.resolve(text, {"n": 1, "big": '{"k": "' + "x" * count + '"}'})
            best = min(best, time.thread_time() - start)
        return best

    assert seconds(5_000) < 60 * max(seconds(500), 0.0002)
