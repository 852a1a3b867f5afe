"""Tenuto: an inference system for agents. It holds each agent's KV cache across its tool calls."""

__version__ = "0.1.0"
