"""How vLLM's server is started: a script in the place of its interpreter writes down what it was told."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from bench_harness import SMALL, small_workload

from tenuto.bench.peers.environment import PeerUnavailable
from tenuto.bench.peers.peer import Place
from tenuto.bench.peers.vllm import VLLM
from tenuto.clock import RealClock

TOLD = 'env > "$(dirname "$0")/told.env"; echo "$@" > "$(dirname "$0")/told.args"; echo "没有内存" >&2; exit 4'


@pytest.fixture
def peer(tmp_path: Path) -> VLLM:
    python = tmp_path / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{TOLD}\n", encoding="utf-8")
    python.chmod(0o755)
    return VLLM(Place(tmp_path, tmp_path, "fingerprint"), RealClock())


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for the interpreter")
def test_a_server_that_ends_is_told_of_with_its_last_words(peer: VLLM) -> None:
    with pytest.raises(PeerUnavailable, match=r"status 4: .*没有内存"):
        anyio.run(peer.run, small_workload(SMALL))


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for the interpreter")
def test_it_gets_its_own_libraries_and_a_place_for_what_it_compiles(peer: VLLM, tmp_path: Path) -> None:
    library = tmp_path / "vllm" / "lib" / "libiomp5.so"
    library.parent.mkdir()
    library.write_bytes(b"")
    with pytest.raises(PeerUnavailable):
        anyio.run(peer.run, small_workload(SMALL))
    lines = (tmp_path / "vllm" / "bin" / "told.env").read_text(encoding="utf-8").splitlines()
    told = dict(line.split("=", 1) for line in lines if "=" in line)
    assert str(library) in told["LD_PRELOAD"].split(":")
    assert told["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert {told["VLLM_CACHE_ROOT"], told["TORCHINDUCTOR_CACHE_DIR"]} <= {
        str(tmp_path / "vllm" / "cache"),
        str(tmp_path / "vllm" / "cache" / "inductor"),
    }
    arguments = (tmp_path / "vllm" / "bin" / "told.args").read_text(encoding="utf-8").split()
    assert {"--enable-prefix-caching", "--skip-tokenizer-init", "--enable-prompt-tokens-details"} <= set(arguments)
    assert arguments[arguments.index("--max-num-seqs") + 1] == str(SMALL.agents)
