"""Can it copy? Lines with numbers and lines of code, to be repeated to the last character by greedy decoding.

Copying is what an agent does with ids, amounts and code all day, and one wrong digit is a wrong answer. The line stands
in the prompt after worked examples of the task, so that small models can do it. Greedy decoding repeats a line exactly
if and only if each token of the line is the likeliest after those before it: one forward call tells, without decoding.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tenuto.compare.report import CopyReport, LostCopy
from tenuto.compare.steps import Head, Piece, ragged
from tenuto.ids import TokenId
from tenuto.model import Decoder
from tenuto.text.tokenizer import Tokenizer

NUM_LINES = 32  # of each kind
_NUM_EXAMPLES = 2
_SEED = 20  # the same lines on every machine
_AT_ONCE = 8


@dataclass(frozen=True)
class CopyTask:
    """A prompt, the line to copy, and the ids of both."""

    line: str
    prompt_ids: tuple[TokenId, ...]
    line_ids: tuple[TokenId, ...]  # with the end of the line

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.line_ids)


@dataclass(frozen=True)
class Copied:
    """What one side makes of a task: the likeliest token at each place of the line."""

    ids: tuple[TokenId, ...]

    def is_exact(self, task: CopyTask) -> bool:
        return self.ids == task.line_ids


def copy_tasks(tokenizer: Tokenizer, num_lines: int = NUM_LINES) -> dict[str, tuple[CopyTask, ...]]:
    """Tasks by their kind; the same for every model but for the ids."""
    return {kind: _tasks(tokenizer, make, num_lines) for kind, make in (("numbers", _numbers), ("code", _code))}


def _tasks(
    tokenizer: Tokenizer, make: Callable[[random.Random], tuple[str, ...]], num_lines: int
) -> tuple[CopyTask, ...]:
    chance = random.Random(_SEED)
    found = []
    for number in range(num_lines):
        drawn = (make(chance) for _ in range(_NUM_EXAMPLES + 1))
        *shown, line = (shapes[number % len(shapes)] for shapes in drawn)  # examples have the shape of the line
        prompt = "".join(f"Line: {each}\nCopy: {each}\n\n" for each in shown) + f"Line: {line}\nCopy:"
        prompt_ids = (*tokenizer.opening, *tokenizer.encode(prompt, "after_control" if tokenizer.opening else "start"))
        found.append(CopyTask(line, prompt_ids, tuple(tokenizer.encode(f" {line}\n", "inside"))))
    return tuple(found)


def _digits(chance: random.Random, num: int) -> str:
    return str(chance.randrange(1, 10)) + "".join(str(chance.randrange(10)) for _ in range(num - 1))


def _numbers(chance: random.Random) -> tuple[str, ...]:
    """Ids, amounts, dates and hexadecimal, in English and Chinese: one line of each shape."""
    order, amount = f"{_digits(chance, 4)}-{_digits(chance, 5)}", f"{_digits(chance, 3)}.{_digits(chance, 2)}"
    day = f"{chance.randrange(1900, 2100)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
    key = f"{chance.randrange(16**8):08x}"
    return (
        f"order {order}, {amount} dollars, due {day}",
        f"订单 {order}，金额 {amount} 元，日期 {day}",
        f"{_digits(chance, 16)} {amount}",
        f"commit {key} by {_digits(chance, 6)} on {day}",
        f"0.{_digits(chance, 9)}, -{amount}, {_digits(chance, 2)}e-{chance.randrange(2, 12)}",
    )


def _code(chance: random.Random) -> tuple[str, ...]:
    """Statements whose names and constants nobody can guess: one line of each shape."""

    def name() -> str:
        word = chance.choice(("x", "row", "total", "idx", "buf", "max_len", "cfg", "node", "tmp", "retry"))
        return f"{word}_{chance.randrange(100)}"

    a, b, c = name(), name(), name()
    return (
        f"{a} = {b}[{chance.randrange(99)}:{chance.randrange(99)}] + 0x{chance.randrange(4096):X}",
        f"if {a} >= {b} and not {c}: return {chance.randrange(1000)}",
        f"{a} = fetch({b}, key='{c}', timeout={chance.randrange(900)})",
        f"for (int {a} = {chance.randrange(9)}; {a} < {b}; {a} += {chance.randrange(2, 9)}) {c}++;",
        f"assert {a}[{chance.randrange(10**6)}] == {b} * {_digits(chance, 3)} - {c}",
    )


def copied(decoder: Decoder, tasks: Sequence[CopyTask]) -> list[Copied]:
    """What a model makes of the tasks, several in one forward call."""
    found: list[Copied] = []
    for start in range(0, len(tasks), _AT_ONCE):
        found += _copied(decoder, tasks[start : start + _AT_ONCE])
    return found


def _copied(decoder: Decoder, tasks: Sequence[CopyTask]) -> list[Copied]:
    block_size, pieces, next_block = decoder.device.block_size, [], 0
    for task in tasks:
        ids = (*task.prompt_ids, *task.line_ids)
        pieces.append(Piece(ids, first_block=next_block))
        next_block += -(-len(ids) // block_size)
    states = decoder.compute(ragged(pieces, block_size, hidden=True), decoder.allocate_kv(next_block)).hidden
    assert states is not None
    found, end = [], 0
    for task, piece in zip(tasks, pieces, strict=True):
        end += len(piece.ids)
        rows = states[end - len(task.line_ids) - 1 : end - 1]  # the last token's own prediction comes after the line
        likeliest = Head.of(decoder).logits(rows).argmax(-1)
        found.append(Copied(tuple(map(TokenId, likeliest.tolist()))))
    return found


def copy_report(
    kind: str, tasks: Sequence[CopyTask], a: Sequence[Copied], b: Sequence[Copied], tokenizer: Tokenizer
) -> CopyReport:
    lost = [
        LostCopy(text=task.line, wrote=_written(task, of_b, tokenizer))
        for task, of_a, of_b in zip(tasks, a, b, strict=True)
        if of_a.is_exact(task) and not of_b.is_exact(task)
    ]
    return CopyReport(
        kind=kind,
        num_lines=len(tasks),
        num_exact_a=sum(each.is_exact(task) for task, each in zip(tasks, a, strict=True)),
        num_exact_b=sum(each.is_exact(task) for task, each in zip(tasks, b, strict=True)),
        lost=tuple(lost),
    )


def _written(task: CopyTask, found: Copied, tokenizer: Tokenizer) -> str:
    """Up to the first wrong token: what would follow it was not computed."""
    wrong = next(i for i, (x, y) in enumerate(zip(found.ids, task.line_ids, strict=True)) if x != y)
    return tokenizer.decode(found.ids[: wrong + 1]).strip()
