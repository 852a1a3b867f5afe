"""Other engines on the same workload, each in an environment of its own: `tenuto bench peers`."""
