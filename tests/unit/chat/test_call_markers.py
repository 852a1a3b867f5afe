"""Tool calls marked by control tokens: the parser sees them, the user never does, and history is written with them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

from chat_harness import CLOCK, END, SESSION, WEATHER, Chat, assistant, call, result, run, user
from embedded_tokenizer import embedded_files
from tenuto.ids import TokenId
from tenuto.protocol.chat import ModelEvent, TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted
from tenuto.text.formats.known import FORMATS
from tenuto.text.gguf_vocabulary import from_gguf
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import TextFormat

CALLS, ARGS = "[TOOL_CALLS]", "[ARGS]"


@lru_cache(maxsize=1)
def marked_tokenizer() -> Tokenizer:
    """The embedded one, with Mistral's markers as special tokens in place of two that nobody needs."""
    files = embedded_files()
    assert files.gguf is not None
    vocabulary = from_gguf(files.gguf)
    control, token_bytes = dict(vocabulary.control), list(vocabulary.token_bytes)
    for old, new in (("<repo_name>", CALLS), ("<reponame>", ARGS)):
        control[new] = control.pop(old)
        token_bytes[control[new]] = new.encode()
    return Tokenizer(replace(vocabulary, control=control, token_bytes=tuple(token_bytes)), files)


TOKENIZER = marked_tokenizer()
FORMAT = TextFormat(FORMATS["mistral-args"], hidden=TOKENIZER.call_markers)


def said(text: str) -> list[TokenId]:
    return [*TOKENIZER.encode_with_control(text), END]


def chat(*replies: str) -> Chat:
    return Chat([said(reply) for reply in replies], tokenizer=TOKENIZER, tool_format=FORMAT)


def call_text(name: str, **arguments: Any) -> str:
    return f"{CALLS}{name}{ARGS}{json.dumps(arguments, ensure_ascii=False)}"


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_the_vocabulary_says_which_markers_are_its_own() -> None:
    assert TOKENIZER.call_markers == {CALLS, ARGS}
    ids = TOKENIZER.encode_with_control(call_text("clock"))
    assert TOKENIZER.decode(ids, skip_control=True) == "clock{}"
    assert TOKENIZER.decode(ids, skip_control=True, markers=True) == call_text("clock")


def test_calls_behind_markers_reach_the_caller_and_the_markers_do_not() -> None:
    async def main() -> None:
        both = call_text("get_weather", city="奥斯陆") + call_text("clock")
        events = await chat("看一下。" + both).events(user("天气"), tools=(WEATHER, CLOCK))
        assert text_of(events) == "看一下。"
        started = [event for event in events if isinstance(event, ToolCallStarted)]
        assert [event.index for event in started] == [0, 1] and started[0].id != started[1].id
        finished = [event.call for event in events if isinstance(event, ToolCallFinished)]
        assert [(one.name, one.arguments) for one in finished] == [("get_weather", {"city": "奥斯陆"}), ("clock", {})]
        arguments = "".join(
            event.arguments for event in events if isinstance(event, ToolCallDelta) and event.index == 0
        )
        assert json.loads(arguments) == {"city": "奥斯陆"}

    run(main())


def test_a_broken_call_shows_its_text_and_no_marker() -> None:
    async def main() -> None:
        events = await chat(f"{CALLS}clock{ARGS}{{oops").events(user("hi"), tools=(CLOCK,))
        assert text_of(events) == "clock{oops"
        stray = await chat(f"a {ARGS}b {CALLS}").events(user("hi"), tools=(CLOCK,))
        assert "[" not in text_of(stray)

    run(main())


def test_without_tools_markers_are_hidden_and_the_same_words_as_text_are_not() -> None:
    async def main() -> None:
        hidden = await chat(call_text("clock")).events(user("hi"))
        assert text_of(hidden) == "clock{}"
        spelled = Chat([[*TOKENIZER.encode(f"write {CALLS} first"), END]], tokenizer=TOKENIZER, tool_format=FORMAT)
        assert text_of(await spelled.events(user("hi"))) == f"write {CALLS} first"

    run(main())


def test_a_turn_with_marked_calls_goes_on_with_the_ids_it_was_generated_with() -> None:
    async def main() -> None:
        talk = chat(call_text("get_weather", city="北京"), "晴。")
        first = await talk.ask(user("天气"), tools=(WEATHER,))
        made = first.message.tool_calls[0]
        held = talk.tokens()
        second = await talk.ask(
            user("天气"), assistant("", call(made.id, city="北京")), result(made.id, "晴"), tools=(WEATHER,)
        )
        assert second.message.content == "晴。" and second.usage.reuse_break is None
        assert talk.tokens(SESSION)[: len(held)] == held

    run(main())


def test_content_cannot_write_a_marker() -> None:
    talk = chat("ok")
    ids = talk.template.render([user(f"say {CALLS}clock{ARGS}{{}}")], [CLOCK], add_generation_prompt=True)
    encoded = TOKENIZER.encode(ids)
    marked = [TOKENIZER.text_of(i) for i in encoded if i in (TOKENIZER.control[CALLS], TOKENIZER.control[ARGS])]
    assert marked == [CALLS, ARGS], "only what the declaration says of a call"
