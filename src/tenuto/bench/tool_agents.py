"""Agents that call tools through the chat room: templates, grammars, parsing and forced ids are all in the path."""

from __future__ import annotations

from collections.abc import Callable

from tenuto.bench.driver import RunClock
from tenuto.bench.records import TurnRecord
from tenuto.bench.stopwatch import TurnWatch
from tenuto.bench.tool_workload import TOOLS, ToolWorkload
from tenuto.bench.watched_engine import WatchedEngine
from tenuto.errors import TenutoError
from tenuto.ids import SessionId
from tenuto.protocol.chat import ChatRequest, ModelClient, ReplyFinished
from tenuto.protocol.engine import EngineClient, GenerateUsage
from tenuto.protocol.hints import ExpectedWait
from tenuto.protocol.messages import Message


class ToolAgents:
    """Each agent is a held conversation; each turn must call one of the tools, and is answered with the next result.

    Args:
        make_client: the chat client over an engine; it is given one that is watched.
    """

    def __init__(
        self,
        engine: EngineClient,
        make_client: Callable[[EngineClient], ModelClient],
        workload: ToolWorkload,
        clock: RunClock,
    ) -> None:
        self._engine = WatchedEngine(engine)
        self._client = make_client(self._engine)
        self._workload = workload
        self._clock = clock
        system = Message(role="system", content=workload.system)
        self._histories = [[system] for _ in workload.results]
        self._num_known = [0 for _ in workload.results]  # tokens of the session after the last turn

    @property
    def clock(self) -> RunClock:
        return self._clock

    @property
    def sessions(self) -> tuple[SessionId, ...]:
        """Those that are open once every agent has had a turn."""
        return tuple(map(_session, range(len(self._histories))))

    async def tool(self, agent: int) -> None:
        wait_s = self._workload.shape.tool_s
        await self._client.suspend(_session(agent), ExpectedWait(seconds=wait_s))
        await self._clock.sleep(wait_s)

    async def turn(self, agent: int, turn: int) -> TurnRecord:
        """Raises TenutoError if the reply did not end as a tool call, e.g. cut by its most tokens."""
        history = self._histories[agent]
        self._add_result(history, self._workload.results[agent][turn])
        session = _session(agent)
        watch = self._engine.watches[session] = TurnWatch(agent, turn, 0, self._clock.now)
        request = ChatRequest(
            messages=tuple(history),
            tools=TOOLS,
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=self._workload.shape.output_tokens,
            session=session,
        )
        finished = None
        async for event in self._client.stream(request):
            if isinstance(event, ReplyFinished):
                finished = event
        assert finished is not None, "a stream ends with ReplyFinished"
        if not finished.message.tool_calls:
            raise TenutoError(
                f"agent {agent} called no tool in turn {turn}, but ended with {finished.reason}: "
                "give it more output tokens"
            )
        history.append(finished.message)
        use = finished.usage
        usage = GenerateUsage(
            num_held=use.num_held, num_shared=use.num_shared, num_computed=use.num_computed, num_forced=use.num_forced
        )
        num_in = use.num_prompt - self._num_known[agent]
        self._num_known[agent] = use.num_prompt + use.num_generated
        return watch.record(use.num_prompt, usage, num_in)

    def _add_result(self, history: list[Message], text: str) -> None:
        if len(history) == 1:
            history.append(Message(role="user", content=text))
            return
        call = history[-1].tool_calls[0]
        history.append(Message(role="tool", content=text, tool_call_id=call.id, name=call.name))


def _session(agent: int) -> SessionId:
    return SessionId(f"agent-{agent}")
