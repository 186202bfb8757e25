"""The Transformer of the specification."""

from andrea.model.transformer import Block, Transformer

__all__ = ["Block", "Transformer"]
