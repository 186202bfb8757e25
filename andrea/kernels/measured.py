"""Which kernels train fastest on which GPU. benchmarks/gpu.py writes this file; it is empty until that was run on one."""

FASTEST: dict[tuple[str, bool], str] = {}  # (the GPU's name, whether torch.compile is on) -> one of kernels.BY_NAME
