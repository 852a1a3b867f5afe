"""Templates of families that know no tools, no system message, or no two user turns in a row (B15, B17)."""

from __future__ import annotations

import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.clock import RealClock
from tenuto.errors import TemplateError
from tenuto.ids import CallId
from tenuto.protocol.messages import Message, ToolCall, ToolSpec
from tenuto.text.template import ChatTemplate
from tenuto.text.tokenizer import Tokenizer

# Turns alternate, strictly; a system message is refused, as older Mistral and Gemma templates do.
STRICT = """{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate, user first') }}
{%- endif %}
{{- '[' ~ m.role ~ ']' ~ (m.content | trim) }}
{%- endfor %}{{ '[assistant]' if add_generation_prompt }}"""
# Drops a system message without a word.
DEAF = """{%- for m in messages if m.role != 'system' %}{{ '<' ~ m.role ~ '>' ~ m.content }}{% endfor %}"""
# Takes system messages, and nothing else of note.
PLAIN = """{%- for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"""

SYSTEM = Message(role="system", content="Sei kurz.")
USER = Message(role="user", content="北京天气？")
TOOL = ToolSpec(
    name="get_weather",
    description="天气",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CALL = Message(
    role="assistant", tool_calls=(ToolCall(id=CallId("c1"), name="get_weather", arguments={"city": "北京"}),)
)
NOW = ToolCall(id=CallId("c2"), name="now", arguments={})
RESULT = Message(role="tool", content="晴，3 度", tool_call_id=CallId("c1"), name="get_weather")


class _WithoutChatML:
    """The embedded vocabulary, as of a family that has no ChatML tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.control = {text: i for text, i in tokenizer.control.items() if "im_" not in text}

    def __getattr__(self, name: str) -> object:
        return getattr(self._tokenizer, name)


def render(source: str, *messages: Message, tools: tuple[ToolSpec, ...] = (), opened: bool = True) -> str:
    template = ChatTemplate(source, _WithoutChatML(embedded_tokenizer()), RealClock())  # type: ignore[arg-type]
    return template.render(messages, tools, add_generation_prompt=opened).plain()


def test_a_system_message_begins_the_users_where_the_template_refuses_it() -> None:
    assert render(STRICT, SYSTEM, USER) == "[user]Sei kurz.\n\n北京天气？[assistant]"


def test_a_system_message_is_not_lost_where_the_template_drops_it() -> None:
    assert render(DEAF, SYSTEM, USER) == "<user>Sei kurz.\n\n北京天气？"


def test_a_system_message_stays_where_the_template_takes_it() -> None:
    assert render(PLAIN, SYSTEM, USER, USER) == "system: Sei kurz.\nuser: 北京天气？\nuser: 北京天气？\n"


def test_user_messages_in_a_row_become_one() -> None:
    assert (
        render(STRICT, USER, Message(role="user", content="还有上海？")) == "[user]北京天气？\n\n还有上海？[assistant]"
    )


def test_a_system_message_in_the_middle() -> None:
    reply = Message(role="assistant", content="ok")
    late = render(STRICT, USER, reply, Message(role="system", content="Auf Deutsch."), USER)
    assert late == "[user]北京天气？[assistant]ok[user]Auf Deutsch.\n\n北京天气？[assistant]"


def test_what_cannot_be_brought_into_order_is_refused_with_the_templates_reason() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        render(STRICT, Message(role="assistant", content="first"), USER)


def test_tools_calls_and_results_are_text_in_the_turns_a_template_knows() -> None:
    after = Message(role="user", content="谢谢")
    text = render(STRICT, SYSTEM, USER, CALL, RESULT, after, tools=(TOOL,))
    assert text == (
        "[user]Sei kurz.\nTools:\nget_weather(city): 天气\n"
        'To use a tool, write <tool_call>{"name": "...", "arguments": {...}}</tool_call>\n\n北京天气？'
        '[assistant]<tool_call>{"name": "get_weather", "arguments": {"city": "北京"}}</tool_call>'
        "[user]<tool_response>\n晴，3 度\n</tool_response>\n\n谢谢[assistant]"
    )


def test_results_of_one_turn_are_one_message() -> None:
    two = Message(role="assistant", content="两个", tool_calls=(*CALL.tool_calls, NOW))
    text = render(PLAIN, USER, two, RESULT, Message(role="tool", content="9:00", tool_call_id=CallId("c2"), name="now"))
    assert text.endswith(
        'assistant: 两个\n<tool_call>{"name": "get_weather", "arguments": {"city": "北京"}}</tool_call>\n'
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n'
        "user: <tool_response>\n晴，3 度\n</tool_response>\n<tool_response>\n9:00\n</tool_response>\n"
    )
