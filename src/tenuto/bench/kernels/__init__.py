"""Kernels and whole steps of a model against what the machine can do at best: `tenuto bench kernels`."""
