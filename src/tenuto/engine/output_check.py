"""An executor is trusted with numbers, not with shapes: what came back is compared with what was asked for."""

from __future__ import annotations

from tenuto.engine.batch import Batch, Output


def mismatch(batch: Batch, output: Output, vocab_size: int) -> str | None:
    """Why an output cannot belong to the batch; None if it can."""
    if len(output.token_ids) != len(batch.slices):
        return f"{len(output.token_ids)} ids for {len(batch.slices)} slices"
    for index, (piece, token) in enumerate(zip(batch.slices, output.token_ids, strict=True)):
        if (index in output.states) != (piece.states is not None and index not in output.broken):
            return "hidden states are missing, or were not asked for"
        if index in output.broken and piece.states is not None:
            continue
        if (token is not None or index in output.broken) != piece.samples:
            return "an id where none was asked for" if token is not None else "an id is missing"
        if token is not None and not 0 <= token < vocab_size:
            return f"token id {token} is out of range"
        num_accepted = output.num_accepted.get(index, 0)
        if not 0 <= num_accepted <= piece.num_drafts:
            return f"{num_accepted} drafts of {piece.num_drafts} are accepted"
        num_scored = 0 if token is None or piece.logprobs is None else num_accepted + 1
        if len(output.logprobs.get(index, ())) != num_scored:
            return "a log-probability is missing, or was not asked for"
    return None
