from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.clock import RealClock
from tenuto.errors import TemplateError
from tenuto.text.sandbox import RenderLimits, SandboxedTemplate


class FixedClock(RealClock):
    def today(self) -> datetime:
        return datetime(2026, 1, 5, tzinfo=UTC)


def render(source: str, **variables: Any) -> str:
    return SandboxedTemplate(source, FixedClock()).render(variables)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in 'x' * 90000 %}{% for b in 'x' * 90000 %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in [1,2] recursive %}{{ loop([1,2]) }}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% set ns = namespace(n=9) %}{% for a in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'x'.center(10000000000) }}",
        "{{ 'x' | indent(10000000000, true) }}",
        "{{ [1, 2] | tojson(indent=1000000000) }}",
        "{{ ('x' * 100000) | replace('', 'y' * 100000) }}",
        "{{ ('x' * 100000).replace('', 'y' * 100000) }}",
        "{{ range(99999) | join('y' * 100000) }}",
        "{{ ('y' * 100000).join('x' * 100000) }}",
        "{{ lipsum(100000000) }}",
        "{% set x = 'y' * 1000000 %}" + "{{ x }}" * 100,
    ],
)
def test_a_template_that_costs_too_much_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ().__class__.__base__.__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ self._TemplateReference__context.environment }}",
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ [()] | map(attribute='__class__') | list }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_internals_and_changes_are_out_of_reach(source: str) -> None:
    try:
        text = render(source, messages=[1])
    except TemplateError:
        return
    assert text in ("", "[Undefined]")


def test_what_chat_templates_need_is_there() -> None:
    assert render("{% generation %}a{% endgeneration %}b") == "ab"
    assert render("{{ strftime_now('%d %b %Y') }}") == "05 Jan 2026"
    assert render("{{ x | tojson }}", x={"城市": "<纽约> & 'é'"}) == '{"城市": "<纽约> & \'é\'"}'
    assert render("{{ x | tojson(indent=2) }}", x=[1]) == "[\n  1\n]"
    loop = "{% for i in x %}{% if i == 2 %}{% break %}{% endif %}{{ loop.index }}/{{ loop.length }} {% endfor %}"
    assert render(loop, x=[1, 3, 2]) == "1/3 2/3 "
    assert render("{% for i in x %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", x="abc") == "a, b, c"
    assert render("{% for k, v in x.items() %}{{ k ~ '=' ~ v }}{% endfor %}", x={"a": 1}) == "a=1"
    assert render("{{ x[::-1] | join(', ') }} {{ x | map(attribute='n') | list }}", x=[{"n": 1}]) == "{'n': 1} [1]"
    assert render("{{ 'a-b'.split('-')[-1].strip() }}{{ ' x '|trim }}{{ 'q'|replace('q', 'r') }}") == "bxr"


def test_deadline_holds_on_a_slow_machine() -> None:
    class Slow(FixedClock):
        seconds = 0.0

        def now(self) -> float:
            self.seconds += 1.0
            return self.seconds

    with pytest.raises(TemplateError, match=r"more than 5\.0 s"):
        SandboxedTemplate("{% for a in range(100) %}{% endfor %}", Slow()).render({})


def test_a_template_that_is_none_is_refused() -> None:
    with pytest.raises(TemplateError, match="cannot be compiled"):
        SandboxedTemplate("{% if %}", FixedClock())
    with pytest.raises(TemplateError, match="longer than 10"):
        SandboxedTemplate("x" * 11, FixedClock(), RenderLimits(max_source_chars=10))


def test_a_failing_template_names_its_failure() -> None:
    with pytest.raises(TemplateError, match="has no attribute 'nothing'"):
        render("{{ messages.nothing.at_all }}", messages={})
