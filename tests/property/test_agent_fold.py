"""Whatever a model and its tools do, a run's state is the fold of its journal, and its steps follow from it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.agents import Agent, RunFinished
from tenuto.agents.journal import Intended, MemoryJournal, Returned, decode_entry, encode_entry
from tenuto.agents.loop import decide
from tenuto.agents.state import fold
from tenuto.agents.step import CallTools, Finish
from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import EngineClosed, QueueFull
from tenuto.ids import IdSource
from tenuto.testing.scripted_model import Reply, ScriptedModel
from tenuto.testing.scripted_tools import ScriptedTools

NAMES = st.sampled_from(["look", "poll", "broken", "slow", "no_such_tool"])
ARGUMENTS = st.sampled_from([{"query": "北京"}, {"query": "a"}, {}, {"query": 10**30}, {"other": [1, {"x": None}]}])
REPLIES = st.builds(
    Reply,
    text=st.sampled_from(["", "我看看", "hello"]),
    calls=st.lists(st.tuples(NAMES, ARGUMENTS), max_size=4).map(tuple),
    error=st.sampled_from([None, None, None, None, QueueFull("full"), EngineClosed("stopped")]),
    delay_s=st.sampled_from([0.0, 3.0]),
)


async def play(replies: list[Reply], max_turns: int, choice: str, deadline_s: float | None):
    clock = VirtualClock()
    polled = iter(range(1000))
    scripted = ScriptedTools(clock)
    tools = [
        scripted.make("look", ["同样"], delay_s=1.0),
        scripted.make("poll", lambda _: next(polled)),
        scripted.make("broken", [ValueError("坏了")]),
        scripted.make("slow", ["晚"], delay_s=500.0, deadline_s=5.0),
    ]
    model = ScriptedModel([*replies, *["完"] * (max_turns + 1)], clock=clock)
    agent = Agent(
        model, tools, max_turns=max_turns, tool_choice=choice, deadline_s=deadline_s, clock=clock, ids=IdSource(0)
    )
    journal = MemoryJournal()
    messages = agent.messages_for("问")
    events = [event async for event in agent.run_in(None, messages, journal)]
    return events, await journal.entries()


@settings(max_examples=150, deadline=None)
@given(
    replies=st.lists(REPLIES, max_size=6),
    max_turns=st.integers(1, 6),
    choice=st.sampled_from(["auto", "required", "none"]),
    deadline_s=st.sampled_from([None, 4.0]),
)
def test_every_step_follows_from_the_journal_before_it(replies, max_turns, choice, deadline_s):
    events, entries = run_virtual(play(replies, max_turns, choice, deadline_s))

    entries = [decode_entry(encode_entry(entry)) for entry in entries]
    for at, entry in enumerate(entries):
        if isinstance(entry, Intended):
            assert decide(fold(entries[:at])) == entry.step
            assert decide(fold(entries[: at + 1])) == entry.step  # intent alone changes nothing
        elif isinstance(entry, Returned):  # taken up here, the run would do exactly the calls without a result
            step = decide(fold(entries[:at]))
            assert isinstance(step, CallTools)
            assert entry.index in [index for index, _ in step.calls]
    finish = entries[-1].step
    assert isinstance(finish, Finish)
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert (last.reason, last.text, last.error_code) == (finish.reason, finish.text, finish.error_code)
    assert sum(isinstance(event, RunFinished) for event in events) == 1

    state = fold(entries)
    assert state.num_turns <= max_turns
    if last.reason != "error":
        calls = [call.id for message in state.messages for call in message.tool_calls]
        assert calls == [message.tool_call_id for message in state.messages if message.role == "tool"]


def test_the_same_script_gives_the_same_journal():
    replies = [Reply(calls=(("look", {"query": "北京"}), ("poll", {"query": "a"}))), Reply("好")]
    runs = [run_virtual(play(replies, 4, "auto", None))[1] for _ in range(2)]
    assert runs[0] == runs[1]
