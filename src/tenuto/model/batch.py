"""The batch a decoder takes. Defined beside the device, which plans its operations from it."""

from tenuto.device.ragged import RaggedBatch

__all__ = ["RaggedBatch"]
