"""Workloads of agents, run on our engine or on any server, and what they cost: `tenuto bench agents`."""
