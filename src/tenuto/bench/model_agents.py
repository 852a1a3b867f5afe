"""Agents as chat conversations in this process: what `chat_agents` sends to a server, without one."""

from __future__ import annotations

from tenuto.bench.driver import RunClock
from tenuto.bench.records import TurnRecord
from tenuto.bench.stopwatch import TurnWatch
from tenuto.bench.workload import TextWorkload
from tenuto.errors import TenutoError
from tenuto.protocol.chat import ChatRequest, ModelClient, ReasoningDelta, ReplyFinished, TextDelta
from tenuto.protocol.engine import GenerateUsage
from tenuto.protocol.messages import Message


class ModelAgents:
    """One conversation an agent, without a session: every turn gives the whole history."""

    def __init__(self, model: ModelClient, texts: TextWorkload, clock: RunClock) -> None:
        self._model = model
        self._texts = texts
        self._clock = clock
        self._histories = [[Message(role="system", content=texts.system)] for _ in texts.results]
        self._num_known = [0 for _ in texts.results]

    @property
    def clock(self) -> RunClock:
        return self._clock

    async def tool(self, agent: int) -> None:
        await self._clock.sleep(self._texts.shape.tool_s)

    async def turn(self, agent: int, turn: int) -> TurnRecord:
        history, wanted = self._histories[agent], self._texts.shape.output_tokens
        kind = "Result" if turn else "Task"
        history.append(Message(role="user", content=f"{kind}: {self._texts.results[agent][turn]}"))
        watch = TurnWatch(agent, turn, 0, self._clock.now)
        finished = await ask(self._model, history, wanted, watch)
        history.append(finished.message)
        use = finished.usage
        if use.num_generated != wanted:
            raise TenutoError(f"{use.num_generated} tokens were generated in turn {turn} where {wanted} were asked for")
        num_in = use.num_prompt - self._num_known[agent]
        self._num_known[agent] = use.num_prompt + use.num_generated
        told = GenerateUsage(num_held=use.num_held, num_shared=use.num_shared, num_computed=use.num_computed)
        return watch.record(use.num_prompt, told, num_in, tells_steps=False)


async def ask(model: ModelClient, history: list[Message], max_tokens: int, watch: TurnWatch) -> ReplyFinished:
    """One greedy turn. `watch` sees a token for each piece of text, and at the end those that had none."""
    request = ChatRequest(messages=tuple(history), max_tokens=max_tokens, ignore_eos=True)
    async for event in model.stream(request):
        if isinstance(event, ReasoningDelta | TextDelta):
            watch.saw(1 if watch.num_out < max_tokens else 0)
        elif isinstance(event, ReplyFinished):
            watch.saw(event.usage.num_generated - watch.num_out, is_step=False)
            return event
    raise AssertionError("a model's stream ends with ReplyFinished")
