"""Which format a model speaks: small templates of the shapes that families use, in words of our own."""

from __future__ import annotations

import pytest

from tenuto.text.formats.recognise import recognise

LIST_TOOLS = "{% for t in tools %}{{ t | tojson }}{% endfor %}"
TEMPLATES = {
    "hermes": LIST_TOOLS + "Answer with <tool_call>\n{{ call | tojson }}\n</tool_call>",
    "xml": LIST_TOOLS + "<tool_call>\n<function={{ f.name }}>\n<parameter={{ k }}>\n{{ v }}\n</parameter></function>",
    "llama": LIST_TOOLS
    + "{% if builtin_tools %}<|python_tag|>{% endif %}"
    + 'Use {"name": function name, "parameters": its arguments}',
    "pythonic": LIST_TOOLS + "Write [func_name1(params_name1=value1, ...), func_name2(params)]",
    "mistral": "[AVAILABLE_TOOLS] {{ tools }}[/AVAILABLE_TOOLS][TOOL_CALLS] [{{ calls }}]",
    "mistral-args": "[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}",
    "deepseek": LIST_TOOLS + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ n }}\n```json\n",
    "deepseek-v3.1": LIST_TOOLS + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ n }}<｜tool▁sep｜>{{ a }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_says_how_its_model_calls(name: str) -> None:
    assert recognise(TEMPLATES[name], ()).name == name


@pytest.mark.parametrize(
    ("template", "control", "name"),
    [
        (None, {"[TOOL_CALLS]", "[ARGS]"}, "hermes"),
        ("{{ messages }}", {"[TOOL_CALLS]"}, "hermes"),
        (LIST_TOOLS, {"[TOOL_CALLS]", "[ARGS]"}, "mistral-args"),
        (LIST_TOOLS, {"[TOOL_CALLS]"}, "mistral"),
        (LIST_TOOLS, {"<｜tool▁calls▁begin｜>"}, "deepseek-v3.1"),
        (LIST_TOOLS + '{"name": f, "parameters": p}', {"<|python_tag|>"}, "llama"),
        (LIST_TOOLS + '{"name": f, "parameters": p}', {"<|im_end|>"}, "hermes"),
        (LIST_TOOLS + "<|python_start|>", set(), "pythonic"),
        (LIST_TOOLS, set(), "hermes"),
    ],
)
def test_the_vocabulary_decides_where_the_template_does_not(template: str | None, control: set[str], name: str) -> None:
    assert recognise(template, control).name == name
