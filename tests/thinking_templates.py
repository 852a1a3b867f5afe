"""Small templates of the kinds that thinking models have, all in ChatML's turns."""

from __future__ import annotations

_SOURCE = """
{%- if tools -%}
  {{- '<|im_start|>system\\n' }}
  {%- for tool in tools %}{{ tool.function.name ~ '\\n' }}{% endfor -%}
  {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}
  {%- if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif -%}
{%- endfor -%}
{%- for m in messages -%}
  {{- '<|im_start|>' ~ m.role ~ '\\n' -}}
  {%- if m.role == 'assistant' and m.reasoning_content and (KEEPS) -%}
    {{- '<think>\\n' ~ m.reasoning_content ~ '\\n</think>\\n\\n' -}}
  {%- endif -%}
  {{- m.content -}}
  {%- for c in m.tool_calls or [] -%}
    {{- '\\n' if m.content or not loop.first else '' -}}
    {{- '<tool_call>' ~ {'name': c.function.name, 'arguments': c.function.arguments}|tojson ~ '</tool_call>' -}}
  {%- endfor -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' ~ (OPENING) }}{% endif -%}
"""


def _template(keeps: str, opening: str) -> str:
    return _SOURCE.replace("KEEPS", keeps).replace("OPENING", opening)


APPENDS = _template("true", "''")
"""Keeps all reasoning in history; the model opens its thinking itself. No switch."""

DROPS_EARLIER = _template("loop.index0 > ns.last", "'<think>\\n\\n</think>\\n\\n' if enable_thinking is false else ''")
"""As Qwen3's: drops the reasoning of turns before the last user message; `enable_thinking` turns thinking off."""

OPENS = _template("false", "'<think>\\n'")
"""As DeepSeek-R1's: opens the thinking for the model, and keeps none in history. No switch."""
