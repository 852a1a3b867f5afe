"""Quantised checkpoints of Hugging Face directories: several stored tensors make one matrix.

The files' tensors say what is quantised and how (their parts, types and shapes); the config says only what they cannot.
"""

from tenuto.checkpoint.quantised.scheme import Scheme, gather
from tenuto.checkpoint.quantised.schemes import read_scheme

__all__ = ["Scheme", "gather", "read_scheme"]
