"""The model families, one file each; a new one is a new file and a place in this list."""

from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.gemma3 import GEMMA3
from tenuto.checkpoint.families.llama import LLAMA
from tenuto.checkpoint.families.mistral import MISTRAL
from tenuto.checkpoint.families.qwen2 import QWEN2
from tenuto.checkpoint.families.qwen3 import QWEN3
from tenuto.checkpoint.families.qwen3_moe import QWEN3_MOE
from tenuto.checkpoint.families.smollm3 import SMOLLM3

FAMILIES = (LLAMA, MISTRAL, QWEN2, QWEN3, QWEN3_MOE, GEMMA3, SMOLLM3)

__all__ = ["FAMILIES", "Family"]
