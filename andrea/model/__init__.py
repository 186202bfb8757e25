"""The Transformer of the specification."""

from andrea.model.transformer import Block, Transformer, unfilled

__all__ = ["Block", "Transformer", "unfilled"]
