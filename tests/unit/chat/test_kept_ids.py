"""Which ids of a reply a stop string leaves: as many as say nothing beyond it, found in a few looks."""

from __future__ import annotations

import random

import pytest

from chat_harness import TOKENIZER, call_text
from tenuto.chat.reading import ReplyForm
from tenuto.chat.reply import ReplyReader
from tenuto.ids import IdSource, TokenId
from tenuto.text.tool_format import HermesFormat, Text, ToolCallFormat

WORDS = ["lorem", " ipsum", "猫", "😀", "👩‍👩‍👧", "é", "7", "\n", " <tool", "</", "): ", "天气", " "]


def text_of(ids: list[TokenId], tool_format: ToolCallFormat | None) -> str:
    text = TOKENIZER.decode(ids, skip_control=True)
    if tool_format is None:
        return text
    parser = tool_format.parser()
    return "".join(piece.text for piece in (*parser.push(text), *parser.finish()) if isinstance(piece, Text))


@pytest.mark.parametrize("with_calls", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_as_many_ids_are_kept_as_say_what_was_emitted(seed: int, with_calls: bool) -> None:
    rng = random.Random(seed)
    tool_format = HermesFormat() if with_calls else None
    text = "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 60)))
    if with_calls:
        calls = "\n".join(call_text(city=rng.choice(["北京", "Oslo"])) for _ in range(rng.randrange(1, 4)))
        text = f"{text[:9]}.{calls}{text}"
    begin = rng.randrange(len(text) - 1)
    stop = rng.choice([text[begin : begin + rng.randrange(1, 30)], text[-rng.randrange(1, 20) :]])
    ids = TOKENIZER.encode(text)
    reader = ReplyReader(ReplyForm(TOKENIZER, tool_format, None), (stop,), IdSource(1), True)
    list(reader.push_all(ids))
    if not reader.stopped:  # it stood in a call
        reader.finish()
    if not reader.stopped:
        return
    read = list(reader._ids)
    kept, added = reader.kept_ids()
    content = reader.message.content
    assert read[: len(kept)] == kept and text_of(kept + added, tool_format) == content
    longer = [read[:n] for n in range(len(kept) + 1, len(read) + 1)]
    assert not [n for n in longer if content.startswith(text_of(n, tool_format))], "as many as can be"


def test_a_long_reply_is_read_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = TOKENIZER.encode("小猫 and a dog, " * 800)
    stop = TOKENIZER.decode(ids)[-1000:]
    reader = ReplyReader(ReplyForm(TOKENIZER, None, None), (stop,), IdSource(1), True)
    reads = []
    decode = type(TOKENIZER).decode
    monkeypatch.setattr(type(TOKENIZER), "decode", lambda *given, **kw: reads.append(1) or decode(*given, **kw))
    list(reader.push_all(ids))
    assert reader.stopped and reader.kept_ids()[0]
    assert len(reads) < 60
