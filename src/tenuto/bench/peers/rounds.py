"""Our engine and others on the same tokens, one after the other, in turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tenuto.bench.driver import Progress
from tenuto.bench.peers.peer import Peer
from tenuto.bench.records import RunRecord
from tenuto.bench.report import Ratio, ratio
from tenuto.bench.summary import Summary, summarise
from tenuto.bench.workload import TokenWorkload
from tenuto.errors import TenutoError

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ours:
    """One setting of our engine, as a column beside the peers."""

    name: str
    run: Callable[[TokenWorkload], Awaitable[RunRecord]]


def prepare(peers: Sequence[Peer], tell: Tell) -> tuple[list[Peer], list[str]]:
    """Install and convert; those that can run, and a line for each that cannot."""
    ready: list[Peer] = []
    missing: list[str] = []
    for peer in peers:
        tell(f"preparing {peer.name} ...")
        try:
            peer.prepare()
        except TenutoError as error:
            missing.append(f"{peer.name} is left out: {error}")
        else:
            ready.append(peer)
    return ready, missing


async def rounds(
    ours: Sequence[Ours], peers: Sequence[Peer], workload: TokenWorkload, num_rounds: int, progress: Progress | None
) -> tuple[list[Summary], list[Ratio], list[str]]:
    """Never two at once. A peer that fails, or whose tokens in or out differ from the workload's, is left out from then
    on, and named; what it had measured is kept.

    Returns:
        Summaries, the ratios of the first of ours to each peer, and a line for each peer: how far its first replies
        are ours, token for token, or why it is left out.

    Raises:
        TenutoError: ours failed.
    """
    runs: dict[str, list[Summary]] = {}
    failed: list[str] = []
    alike: dict[str, str] = {}
    left = list(peers)
    for _ in range(num_rounds):
        own_runs = [await own.run(workload) for own in ours]
        for own, run in zip(ours, own_runs, strict=True):
            runs.setdefault(own.name, []).append(_counted(run, workload))
        for peer in list(left):
            try:
                run = await peer.run(workload, progress)
                counted = _counted(run, workload)
            except TenutoError as error:
                failed.append(f"{peer.name} is left out: {error}")
                left.remove(peer)
                continue
            runs.setdefault(peer.name, []).append(counted)
            alike[peer.name] = (
                f"{peer.name} begins its first replies as {own_runs[0].system} does: {_alike(own_runs[0], run):.0%}"
            )
    first = runs[ours[0].name]
    ratios = [_over(first, of) for name, of in runs.items() if name not in {own.name for own in ours}]
    return [run for of in runs.values() for run in of], ratios, [*alike.values(), *failed]


def _over(ours: Sequence[Summary], theirs: Sequence[Summary]) -> Ratio:
    """Agents per second, round by round."""
    pairs = list(zip(ours, theirs, strict=False))  # a peer may have failed in a later round
    return ratio(
        f"agents/s: {pairs[0][0].system} over {pairs[0][1].system}",
        [own.agents_per_s for own, _ in pairs],
        [their.agents_per_s for _, their in pairs],
    )


def _alike(ours: RunRecord, theirs: RunRecord) -> float:
    """The part of the tokens of first replies that come before the first difference: is it the same model?

    Quantised otherwise, a model soon chooses another token somewhere; a model that was converted wrongly at once.
    """
    replies = [{t.agent: t.ids for t in run.turns if t.turn == 0} for run in (ours, theirs)]
    same = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, replies[1][agent], strict=False)))
        for agent, a in replies[0].items()
    ]
    return sum(same) / max(1, sum(len(a) for a in replies[0].values()))


def _counted(run: RunRecord, workload: TokenWorkload) -> Summary:
    """Raises TenutoError unless every turn took in and gave out the tokens of the workload."""
    shape = workload.shape
    expected = {}
    for agent, pieces in enumerate(workload.pieces):
        context = 0
        for turn, piece in enumerate(pieces):
            context += len(piece)
            expected[agent, turn] = (len(piece), context, shape.output_tokens)
            context += shape.output_tokens
    counted = {(t.agent, t.turn): (t.num_in, t.num_context, t.num_out) for t in run.turns}
    if counted != expected or len(run.turns) != len(expected):
        raise TenutoError(f"{run.system} did other work than the workload's: its tokens in or out differ")
    return summarise(run)
