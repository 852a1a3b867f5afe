"""Encoders in GGUF files are those of the directories they were made from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
from transformers import PreTrainedModel

from tenuto.checkpoint import find_model, open_checkpoint
from tenuto.checkpoint.encoders import is_encoder, open_encoder, read_embedding_layout
from tenuto.device import ReferenceDevice
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.ids import TokenId
from tenuto.model import load_encoder
from tenuto.text.frame import frame_of
from tenuto.text.tokenizer import Tokenizer
from tiny_encoders import bert, save_encoder, write_gguf_encoder, xlm_roberta, xlm_roberta_classifier
from tiny_models import TinyLlama, write_gguf

TEXTS = ("The cats sat on the mat.", "猫坐在垫子上 ☃", "", "[SEP] cat")


@pytest.mark.parametrize("model", [bert(), xlm_roberta()], ids=["bert", "xlm-roberta"])
def test_the_same_hidden_states(tmp_path: Path, model: PreTrainedModel) -> None:
    path = write_gguf_encoder(tmp_path / "tiny.gguf", model, pooling_type=2)
    assert is_encoder(path) and find_model(str(path)) == path
    file, directory = (open_encoder(p) for p in (path, save_encoder(tmp_path / "tiny", model)))
    assert file.layout.pooling == "first" and file.layout.normalise is None
    assert file.config.max_model_tokens == directory.config.max_model_tokens
    ids = [np.random.default_rng(n).integers(4, 64, n).tolist() for n in (1, 30, file.config.max_model_tokens)]
    types = [[0] * len(text) for text in ids]
    ours, theirs = (load_encoder(c, ReferenceDevice()).hidden_states(ids, types)[0] for c in (file, directory))
    assert ours.equal(theirs)


def test_the_same_ids(tmp_path: Path) -> None:
    model = bert()
    file = open_encoder(write_gguf_encoder(tmp_path / "tiny.gguf", model))
    directory = open_encoder(save_encoder(tmp_path / "tiny", model))
    framed = []
    for checkpoint in (file, directory):
        tokenizer = Tokenizer.from_files(checkpoint.tokenizer, 64)
        frame = frame_of(checkpoint.tokenizer, tokenizer)
        ids = [tokenizer.encode(text) for text in TEXTS]
        framed.append([frame.around(text) for text in ids] + [frame.around(ids[0], ids[1])])
    assert framed[0] == framed[1]


def test_the_frame_of_an_xlm_roberta(tmp_path: Path) -> None:
    checkpoint = open_encoder(write_gguf_encoder(tmp_path / "tiny.gguf", xlm_roberta()))
    tokenizer = Tokenizer.from_files(checkpoint.tokenizer, 64)
    frame = frame_of(checkpoint.tokenizer, tokenizer).with_types(1)
    cat, dog = tokenizer.encode("cat"), tokenizer.encode("dog")
    assert frame.around(cat, dog).ids == (0, *cat, 2, 2, *dog, 2)


def test_a_reranker(tmp_path: Path) -> None:
    model = xlm_roberta_classifier()
    file = open_encoder(write_gguf_encoder(tmp_path / "tiny.gguf", model, pooling_type=4))
    directory = open_encoder(save_encoder(tmp_path / "tiny", model))
    assert file.config.num_labels == 1 and file.layout.pooling is None
    ours, theirs = (load_encoder(c, ReferenceDevice()).scores([[0, 9, 2]], [[0] * 3]) for c in (file, directory))
    assert ours.tobytes() == theirs.tobytes()


def test_an_unknown_pooling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="pooling_type = 9"):
        open_encoder(write_gguf_encoder(tmp_path / "tiny.gguf", bert(), pooling_type=9))


def test_other_architectures_are_no_encoders(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "nomic-bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert not is_encoder(tmp_path / "x.gguf")
    with pytest.raises(UnsupportedModel, match="'nomic-bert' is no encoder"):
        open_encoder(tmp_path / "x.gguf")
    (tmp_path / "y.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 16)
    with pytest.raises(ModelFileError):
        is_encoder(tmp_path / "y.gguf")


@pytest.mark.parametrize("ends", [True, False])
def test_a_decoder_made_for_embedding(tmp_path: Path, ends: bool) -> None:
    """Its file names a pooling, and an id that ends every text: without that id its vectors would be of no use."""
    tiny = TinyLlama()
    extra = {"llama.pooling_type": 3, "tokenizer.ggml.add_eos_token": ends, "tokenizer.ggml.add_bos_token": True}
    write_gguf(tmp_path / "tiny.gguf", tiny, tiny.weights(), extra=extra)
    checkpoint = open_checkpoint(tmp_path / "tiny.gguf")
    assert not is_encoder(checkpoint.path)
    assert read_embedding_layout(checkpoint.path).pooling == "last"
    tokenizer: Any = SimpleNamespace(opening=(TokenId(checkpoint.tokenizer.bos_id or 0),))  # the file has no merges
    assert frame_of(checkpoint.tokenizer, tokenizer).around([TokenId(5)]).ids == ((1, 5, 2) if ends else (1, 5))
