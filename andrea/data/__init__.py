"""Text -> units -> tokenizer -> shards -> sampler: from files to rows of token ids."""

from andrea.data.prepare import Prepared, open_prepared, prepare, prepare_steps
from andrea.data.sampler import Sampler
from andrea.data.shards import Tokens
from andrea.data.text import Corpus, Document
from andrea.data.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "Corpus",
    "Document",
    "Prepared",
    "Sampler",
    "Tokenizer",
    "Tokens",
    "load_tokenizer",
    "open_prepared",
    "prepare",
    "prepare_steps",
]
