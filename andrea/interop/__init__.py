"""Our runs as the files of other programs, and theirs as ours: for each format one table of names, and a function for each way."""

from andrea.interop.gguf import export_gguf
from andrea.interop.hf import export_hf, import_hf

__all__ = ["export_gguf", "export_hf", "import_hf"]
