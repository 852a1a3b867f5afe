"""Strings that mark tool calls. In some vocabularies they are control tokens, which parsers must see and users not."""

from __future__ import annotations

HERMES_OPEN, HERMES_CLOSE = "<tool_call>", "</tool_call>"
PYTHON_TAG, PYTHON_START, PYTHON_END = "<|python_tag|>", "<|python_start|>", "<|python_end|>"
TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"

MARKERS = frozenset(
    {
        *(HERMES_OPEN, HERMES_CLOSE),
        *(PYTHON_TAG, PYTHON_START, PYTHON_END),
        *(TOOL_CALLS, CALL_ID, ARGS),
        *(CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEP),
    }
)
