"""The CPU as agents deserve it: native kernels behind the device seam."""

from tenuto.device.cpu.device import CpuDevice
from tenuto.device.cpu.library import NativeLibrary, native_library

__all__ = ["CpuDevice", "NativeLibrary", "native_library"]
