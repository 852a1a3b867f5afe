"""What a chip is good at: the same few fused operations, each device in its own way."""

from tenuto.device.choose import choose_device
from tenuto.device.protocol import AttentionSpec, Device, KVPool, LayerKV, LinearWeight, Precision, Step
from tenuto.device.ragged import RaggedBatch
from tenuto.device.reference import ReferenceDevice

__all__ = [
    "AttentionSpec",
    "Device",
    "KVPool",
    "LayerKV",
    "LinearWeight",
    "Precision",
    "RaggedBatch",
    "ReferenceDevice",
    "Step",
    "choose_device",
]
