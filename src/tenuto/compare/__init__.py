"""How two settings of a model differ: in what they predict, copy and call, in memory and speed."""
