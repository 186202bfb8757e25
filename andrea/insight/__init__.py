"""Insight: what happens inside a model, seen from outside. Start with trace."""

from andrea.insight.trace import Trace, addresses, trace

__all__ = ["Trace", "addresses", "trace"]
