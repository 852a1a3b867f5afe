"""Tool calls in history, through templates of the shapes that families use, in words of our own."""

from __future__ import annotations

import re
from typing import Any

import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.clock import RealClock
from tenuto.errors import TemplateError
from tenuto.ids import CallId
from tenuto.protocol.messages import Message, ToolCall, ToolSpec
from tenuto.text.call_rendering import short_id
from tenuto.text.template import ChatTemplate

TOOL = ToolSpec(name="weather", description="", parameters={"type": "object", "properties": {}})
LONG, SHORT = "call_0123456789abcdef", "a1B2c3D4e"
START = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
OTHERS = "{% else %}({{ m.role }}){{ m.content }}{% endif %}{% endfor %}"

MAPS = (
    START
    + "{% if m.tool_calls %}{{ m.content }}{% for c in m.tool_calls %}<call>{{ c.function | tojson }}{% endfor %}"
    + OTHERS
)
ITEMS = (
    START
    + "{% if m.tool_calls %}{% for c in m.tool_calls %}<{{ c.function.name }}>"
    + "{% for k, v in c.function.arguments.items() %}<{{ k }}={{ v }}>{% endfor %}{% endfor %}"
    + OTHERS
)
PASTES = (
    START
    + "{% if m.tool_calls %}{{ m.content }}{% for c in m.tool_calls %}"
    + "{{ '<' + c.function.name + '>' + c.function.arguments }}"
    + "{% endfor %}"
    + OTHERS
)
NEEDS_NINE = (
    START
    + "{% if m.tool_calls %}{% for c in m.tool_calls %}"
    + "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
    + "{{ c.function | tojson }}#{{ c.id }}{% endfor %}"
    + "{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
    + "={{ m.tool_call_id }}{{ m.content }}"
    + OTHERS
)
NEEDS_NONE = (
    START
    + "{% if m.role == 'assistant' and m.content is none %}{% for c in m.tool_calls %}"
    + "{{ '<' + c.function.name + '>' + c.function.arguments }}{% endfor %}"
    + OTHERS
)
TEMPLATES = {"maps": MAPS, "items": ITEMS, "pastes": PASTES, "nine": NEEDS_NINE, "none": NEEDS_NONE}


def rendered(source: str, content: str = "", call_id: str = LONG, arguments: dict[str, Any] | None = None) -> str:
    call = ToolCall(
        id=CallId(call_id), name="weather", arguments={"city": "奥斯陆"} if arguments is None else arguments
    )
    messages = [
        Message(role="user", content="hi"),
        Message(role="assistant", content=content, tool_calls=(call,)),
        Message(role="tool", content="18 °C", tool_call_id=CallId(call_id), name="weather"),
    ]
    template = ChatTemplate(source, embedded_tokenizer(), RealClock())
    return template.render(messages, [TOOL], add_generation_prompt=True).plain()


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_shape_renders_the_call_its_arguments_and_its_result(name: str) -> None:
    text = rendered(TEMPLATES[name])
    assert all(part in text for part in ("weather", "city", "奥斯陆", "18 °C"))
    assert "None" not in text and '\\"' not in text and "'city'" not in text


@pytest.mark.parametrize("name", ["maps", "pastes", "nine", "none"])
def test_arguments_are_an_object_never_a_string_within_a_string(name: str) -> None:
    assert '{"city": "奥斯陆"}' in rendered(TEMPLATES[name])
    assert "{}" in rendered(TEMPLATES[name], arguments={})


@pytest.mark.parametrize("name", ["maps", "pastes", "none"])
def test_words_beside_a_call_are_kept(name: str) -> None:
    text = rendered(TEMPLATES[name], content="Let me see.")
    assert "Let me see." in text and text.index("Let me see.") < text.index("奥斯陆")


def test_ids_are_mapped_only_where_the_template_wants_nine_characters() -> None:
    ours, theirs = rendered(NEEDS_NINE, call_id=SHORT), rendered(NEEDS_NINE, call_id=LONG)
    assert f"#{SHORT}" in ours and f"={SHORT}" in ours
    [made] = re.findall(r"#(\w+)", theirs)
    assert re.fullmatch("[a-z0-9]{9}", made) and f"={made}18" in theirs and made == short_id(LONG)
    assert short_id(LONG + "x") != made and short_id(SHORT) == SHORT
    shown = (
        START
        + "{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function | tojson }}#{{ c.id }}{% endfor %}"
        + OTHERS
    )
    assert f"#{LONG}" in rendered(shown)


def test_a_template_that_refuses_calls_anyway_is_left_as_it_is() -> None:
    refuses = START + "{% if m.tool_calls %}{{ raise_exception('no calls') }}" + OTHERS
    with pytest.raises(TemplateError, match="no calls"):
        rendered(refuses)
