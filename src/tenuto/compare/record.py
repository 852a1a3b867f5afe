"""What one side leaves behind: enough to compare it with the other after its weights have gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tenuto.compare.accuracy import ROWS, TokenScores, layer_report, text_report, text_scores
from tenuto.compare.calls import Calls
from tenuto.compare.copies import Copied, CopyTask, copied, copy_tasks
from tenuto.compare.plan import Plan, Watch
from tenuto.compare.report import LayerReport, SideReport, TextReport
from tenuto.compare.steps import CHUNK_TOKENS, Head, hidden_states, layer_states
from tenuto.compare.texts import Text
from tenuto.errors import ConfigError
from tenuto.ids import TokenId
from tenuto.model import Decoder
from tenuto.text.tokenizer import Tokenizer

LAYER_TOKENS = 256  # on which the hidden states of every layer are compared


@dataclass(frozen=True)
class SideRecord:
    """One side's answers. Empty where the plan did not ask."""

    report: SideReport
    head: Head
    texts: Mapping[str, Tensor]  # float32 [T, hidden] after the last norm, by the text's name
    layers: Sequence[Tensor]
    copies: Mapping[str, Sequence[Copied]]  # by kind
    calls: Sequence[Calls] | None


@dataclass(frozen=True)
class Reading:
    """The ids that both sides compute."""

    texts: Mapping[str, tuple[TokenId, ...]]
    copies: Mapping[str, tuple[CopyTask, ...]]  # by kind; none if the context is too small for the longest

    @classmethod
    def of(cls, plan: Plan, tokenizer: Tokenizer, max_model_tokens: int) -> Reading:
        """Raises ConfigError: a text is too short to predict anything."""
        limit = min(plan.max_tokens, max_model_tokens)
        texts = {text.name: _ids(text, tokenizer, limit) for text in plan.texts}
        tasks = copy_tasks(tokenizer) if "copies" in plan.parts else {}
        fits = all(task.num_tokens <= max_model_tokens for kind in tasks.values() for task in kind)
        return cls(texts, tasks if fits else {})

    @property
    def first(self) -> tuple[TokenId, ...]:
        return next(iter(self.texts.values()))


def _ids(text: Text, tokenizer: Tokenizer, limit: int) -> tuple[TokenId, ...]:
    opening = tokenizer.opening
    ids = (*opening, *tokenizer.encode(text.content, "after_control" if opening else "start"))[:limit]
    if len(ids) < 2:
        raise ConfigError(f"text {text.name}: it has {len(ids)} tokens, too few to predict one from another")
    return ids


def record(
    decoder: Decoder, reading: Reading, plan: Plan, watch: Watch, report: SideReport, calls: Sequence[Calls] | None
) -> SideRecord:
    """Run everything but the calls and the speed on one side."""
    texts = {name: _text(decoder, name, ids, watch) for name, ids in reading.texts.items() if "accuracy" in plan.parts}
    layers: Sequence[Tensor] = ()
    if "layers" in plan.parts:
        watch.begin("layers", 1)
        layers = layer_states(decoder, reading.first[:LAYER_TOKENS])
        watch.advance()
    copies: dict[str, Sequence[Copied]] = {}
    for kind, tasks in reading.copies.items():
        watch.begin(f"copying {kind}", 1)
        copies[kind] = copied(decoder, tasks)
        watch.advance()
    return SideRecord(report, Head.of(decoder), texts, layers, copies, calls)


def _text(decoder: Decoder, name: str, ids: Sequence[int], watch: Watch) -> Tensor:
    watch.begin(f"reading {name}", -(-len(ids) // CHUNK_TOKENS))
    states = []
    for chunk in hidden_states(decoder, ids):
        states.append(chunk)
        watch.advance()
    return torch.cat(states)


def text_reports(a: SideRecord, b: SideRecord, reading: Reading, watch: Watch) -> tuple[TextReport, ...]:
    found = []
    for name in a.texts:
        ids = reading.texts[name]
        watch.begin(f"comparing {name}", -(-(len(ids) - 1) // ROWS))
        parts: list[TokenScores] = []
        for scores in text_scores((a.head, a.texts[name]), (b.head, b.texts[name]), ids):
            parts.append(scores)
            watch.advance()
        found.append(text_report(name, parts))
    return tuple(found)


def layers_of(a: SideRecord, b: SideRecord) -> LayerReport | None:
    return layer_report(a.layers, b.layers) if a.layers else None
