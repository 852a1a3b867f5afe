"""Our engine and others on the same tokens, one after the other, in turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

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
        Summaries, the ratios of the first of ours to each peer, and a line for each peer that failed.

    Raises:
        TenutoError: ours failed.
    """
    runs: dict[str, list[Summary]] = {}
    failed: list[str] = []
    left = list(peers)
    for _ in range(num_rounds):
        for own in ours:
            runs.setdefault(own.name, []).append(_counted(await own.run(workload), workload))
        for peer in list(left):
            try:
                run = _counted(await peer.run(workload, progress), workload)
            except TenutoError as error:
                failed.append(f"{peer.name} is left out: {error}")
                left.remove(peer)
                continue
            runs.setdefault(peer.name, []).append(run)
    first = runs[ours[0].name]
    ratios = [_over(first, of) for name, of in runs.items() if name not in {own.name for own in ours}]
    return [run for of in runs.values() for run in of], ratios, failed


def _over(ours: Sequence[Summary], theirs: Sequence[Summary]) -> Ratio:
    """Agents per second, round by round."""
    pairs = list(zip(ours, theirs, strict=False))  # a peer may have failed in a later round
    return ratio(
        f"agents/s: {pairs[0][0].system} over {pairs[0][1].system}",
        [own.agents_per_s for own, _ in pairs],
        [their.agents_per_s for _, their in pairs],
    )


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
