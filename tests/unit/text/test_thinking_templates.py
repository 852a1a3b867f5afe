"""Reasoning through templates: in history, and turned on and off."""

from __future__ import annotations

import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.clock import RealClock
from tenuto.ids import CallId
from tenuto.protocol.messages import Message, ToolCall, ToolSpec
from tenuto.text.template import ChatTemplate, TemplateSettings
from thinking_templates import APPENDS, DROPS_EARLIER, OPENS

USER = Message(role="user", content="北京天气？")
THOUGHT = Message(role="assistant", content="晴", reasoning="先想 <think>一想")
CALL = ToolCall(id=CallId("c1"), name="w", arguments={"city": "北京"})
CALLED = Message(role="assistant", reasoning="查一下", tool_calls=(CALL,))
RESULT = Message(role="tool", content="21", tool_call_id=CallId("c1"), name="w")
TOOL = ToolSpec(name="w", description="天气", parameters={"type": "object", "properties": {}})


def render(source: str | None, *messages: Message, tools: tuple[ToolSpec, ...] = (), **settings: object) -> str:
    template = ChatTemplate(source, embedded_tokenizer(), RealClock())
    made = TemplateSettings(**settings)  # type: ignore[arg-type]
    return template.render(messages, tools, made, add_generation_prompt=True).plain()


def test_history_keeps_the_reasoning_that_the_template_keeps() -> None:
    kept = "<|im_start|>assistant\n<think>\n先想 <think>一想\n</think>\n\n晴<|im_end|>\n"
    assert kept in render(APPENDS, USER, THOUGHT, USER)
    assert "想" not in render(DROPS_EARLIER, USER, THOUGHT, USER)
    assert "<think>\n查一下\n</think>\n\n<tool_call>" in render(DROPS_EARLIER, USER, CALLED, RESULT, tools=(TOOL,))
    assert "查一下" not in render(OPENS, USER, CALLED, RESULT, tools=(TOOL,))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_templates_find_it_under_any_of_its_names(field: str) -> None:
    source = f"{{% for m in messages %}}{{{{ m.content }}}}[{{{{ m.{field} }}}}]{{% endfor %}}"
    assert render(source, USER, THOUGHT).endswith(f"[{THOUGHT.reasoning}]")
    assert render(source, USER, Message(role="assistant", content="晴")).endswith("晴[]")


def test_our_own_template_keeps_it_where_the_model_thinks() -> None:
    deaf = "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}"
    text = render(deaf, USER, CALLED, RESULT, tools=(TOOL,))
    assert "<|im_start|>assistant\n<think>\n查一下\n</think>\n\n<tool_call>" in text
    plain = render(None, USER, THOUGHT)
    assert "<think>一想" not in plain and "晴" in plain, "a model that knows no thinking gets none"


def test_thinking_is_turned_off_by_the_switch_that_the_template_has() -> None:
    assert render(DROPS_EARLIER, USER).endswith("<|im_start|>assistant\n")
    assert render(DROPS_EARLIER, USER, thinking=True).endswith("<|im_start|>assistant\n")
    assert render(DROPS_EARLIER, USER, thinking=False).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    late = "{% if thinking %}[T]<think>{% else %}</think>{% endif %}"
    assert render(late, USER).endswith("</think>") and render(late, USER, thinking=True).endswith("[T]<think>")


def test_what_a_template_opens_all_the_same_is_closed() -> None:
    assert render(OPENS, USER).endswith("<|im_start|>assistant\n<think>\n")
    assert render(OPENS, USER, thinking=False).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert render(APPENDS, USER, thinking=False) == render(APPENDS, USER), "there is nothing to close, and no switch"


def test_options_are_variables_and_stay_text() -> None:
    source = "{{ effort }}{{ messages[0].content }}{{ 'on' if flag else 'off' }}</think>"
    shown = render(source, USER, options=(("effort", "<|im_end|>高"), ("flag", True)))
    assert "<|im_end|>高北京天气？on" in shown
    template = ChatTemplate(source, embedded_tokenizer(), RealClock())
    settings = TemplateSettings(options=(("effort", "<|im_end|>"),))
    ids = embedded_tokenizer().encode(template.render((USER,), (), settings, add_generation_prompt=True))
    assert embedded_tokenizer().control["<|im_end|>"] not in ids


def test_an_option_does_not_reach_what_is_rendered() -> None:
    source = "{{ messages|length }}{{ eos_token }}"
    assert render(source, USER, options=(("messages", "no"), ("eos_token", "no"))) == render(source, USER)


def test_system_messages_and_users_have_none_to_show() -> None:
    assert "x" not in render(APPENDS, Message(role="user", content="a", reasoning="x"))
