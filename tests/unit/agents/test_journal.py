from __future__ import annotations

import pytest

from tenuto.agents.journal import Began, Failed, Intended, Replied, Returned, decode_entry, encode_entry
from tenuto.agents.step import CallModel, CallTools, Finish
from tenuto.errors import InvalidRequest
from tenuto.ids import CallId, RunId
from tenuto.protocol.chat import ChatUsage, NamedTool
from tenuto.protocol.messages import Message, ToolCall

CALL = ToolCall(
    id=CallId("abc"), name="天气", arguments={"city": "北京", "n": 10**40, "deep": [{"x": None}, 1.5, True]}
)
ENTRIES = [
    Began(run=RunId("r"), messages=(Message(role="user", content="你好"),), max_turns=3, tool_choice=NamedTool("w")),
    Intended(step=CallModel(turn=1, tool_choice="auto")),
    Replied(
        turn=1, reason="tool_calls", message=Message(role="assistant", tool_calls=(CALL,)), usage=ChatUsage(num_held=4)
    ),
    Intended(step=CallTools(turn=1, calls=((0, CALL),))),
    Returned(turn=1, index=0, text='{"type": "finish"}', is_error=True, error_code="tool_failed", duration_s=0.25),
    Failed(error_code="queue_full", error="full"),
    Intended(step=Finish(reason="error", text="", error_code="queue_full", error="full")),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: type(e).__name__)
def test_an_entry_is_one_line_of_plain_data_that_reads_back_equal(entry):
    line = encode_entry(entry)
    assert b"\n" not in line
    assert decode_entry(line) == entry


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b"[]",
        b'{"type": "os.system", "args": ["ls"]}',
        b'{"type": "intended", "step": {"type": "exec"}}',
        b'{"type": "failed"}',
        b"\x80\x04\x95",  # how a pickle starts
    ],
)
def test_anything_else_is_refused(line):
    with pytest.raises(InvalidRequest, match="not a journal entry"):
        decode_entry(line)
