"""Measures what a precision changes: `python tests/e2e/measure_precision.py`.

Perplexity, KL divergence and agreement against fp32, on a page of prose and a page of code of this repository, with the
embedded model. Takes about a minute on two cores.
"""

from __future__ import annotations

from pathlib import Path

import torch

from tenuto.checkpoint import find_model, open_checkpoint
from tenuto.device import ReferenceDevice, choose_device
from tenuto.device.protocol import Device
from tenuto.device.ragged import RaggedBatch
from tenuto.model import load_model
from tenuto.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
TEXTS = {"prose": ROOT / "ARCHITECTURE.md", "code": ROOT / "src/tenuto/engine/scheduler.py"}
NUM_TOKENS = 1500
DEVICES: dict[str, Device] = {
    "fp32": ReferenceDevice("fp32"),
    "bf16": ReferenceDevice("bf16"),
    "int8": choose_device("int8", None),
    "int8, int8 KV": choose_device("int8", None, "int8"),
}


def log_probabilities(device: Device, ids: list[int]) -> torch.Tensor:
    """float32 [tokens, vocab], of what comes after each token."""
    decoder = load_model(open_checkpoint(find_model("embedded")), device)
    num_blocks, rows = -(-len(ids) // device.block_size), torch.arange(len(ids))
    batch = RaggedBatch(
        token_ids=torch.tensor(ids),
        positions=rows,
        slots=rows,
        query_starts=(0, len(ids)),
        kv_lens=(len(ids),),
        block_tables=torch.arange(num_blocks)[None],
        logit_rows=rows,
    )
    return decoder.forward(batch, decoder.allocate_kv(num_blocks)).log_softmax(-1)


def main() -> None:
    checkpoint = open_checkpoint(find_model("embedded"))
    tokenizer = Tokenizer.from_files(checkpoint.tokenizer, checkpoint.config.vocab_size)
    for name, path in TEXTS.items():
        ids = [int(i) for i in tokenizer.encode(path.read_text(encoding="utf-8"))][:NUM_TOKENS]
        following = torch.tensor(ids[1:])[:, None]
        exact = log_probabilities(DEVICES["fp32"], ids)
        plain = -exact[:-1].gather(1, following).mean()
        for precision, device in DEVICES.items():
            found = log_probabilities(device, ids)
            perplexity = (-found[:-1].gather(1, following).mean() - plain).exp() - 1
            divergence = (exact.exp() * (exact - found)).sum(-1).mean()
            same = (exact.argmax(-1) == found.argmax(-1)).float().mean()
            print(f"{name}, {precision}: perplexity {perplexity:+.2%}, KL {divergence:.4f}, same likeliest {same:.1%}")


if __name__ == "__main__":
    main()
