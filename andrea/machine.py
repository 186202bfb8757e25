"""What this machine has, found by testing for the feature, and what follows for a run: each choice with its reason."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from andrea.config import ModelConfig, TrainConfig

CGROUP = Path("/sys/fs/cgroup")  # where Linux tells a container its limits
BFLOAT16_PAYS_FROM = 128  # d_model; LOG.md, 2026-11-29: narrower ones were not measured


@dataclass(frozen=True)
class Choice:
    """Something settled once for a run, and why. Stored in run.json as `resolved`."""

    name: str
    value: Any
    reason: str


def cores() -> int:
    """Processors this process may use: the affinity mask and a container's quota counted."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (CGROUP / "cpu.max").read_text(encoding="ascii").split()
        return max(1, min(mask, int(quota) // int(period)))
    except (OSError, ValueError):  # no control groups, or no quota ("max")
        return mask


def memory_bytes() -> int | None:
    """Memory this process may use, a container's limit counted; None where the system does not say."""
    total = physical_memory_bytes()
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # control groups of version 2, and of version 1
        try:
            return min(total or 2**63, int((CGROUP / limit).read_text(encoding="ascii")))
        except (OSError, ValueError):
            pass
    return total


def physical_memory_bytes() -> int | None:
    if sys.platform == "win32":
        status = ctypes.create_string_buffer(64)  # MEMORYSTATUSEX: its own size in the first four bytes, the whole memory in eight from 8
        status[0] = len(status)
        done = ctypes.windll.kernel32.GlobalMemoryStatusEx(status)
        return int.from_bytes(status.raw[8:16], "little") if done else None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def device_memory_bytes(device: str) -> int | None:
    """Memory that a run on this device may use. Apple's GPU shares the processor's."""
    import torch

    return torch.cuda.mem_get_info(device)[1] if device.startswith("cuda") else memory_bytes()


def free_disk_bytes(folder: Path) -> int:
    """What may still be written where `folder` is, or would be made."""
    folder = folder.absolute()
    return shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def has_fast_bfloat16() -> bool:
    """Whether matrix products in bfloat16 run on instructions made for it (AVX-512 BF16, AMX, Arm BF16) and not by conversion."""
    import torch

    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    arm = platform.machine().lower() in ("arm64", "aarch64")
    try:  # oneDNN multiplies the matrices; it knows a limit that the processor's own flags do not
        if onednn_limit() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
    except (AttributeError, RuntimeError):
        return False
    return arm or any(getattr(torch.cpu, test, bool)() for test in tests)


def onednn_limit() -> str:
    """The setting that keeps oneDNN from the processor's bfloat16 instructions, or nothing."""
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        isa = os.environ.get(name, "").upper()
        if isa and not any(part in isa for part in ("ALL", "DEFAULT", "BF16", "FP16", "AMX", "AVX10")):
            return f"{name}={isa}"
    return ""


def has_nvidia() -> bool:
    """Whether NVIDIA's driver is installed, whatever torch can do with it."""
    return shutil.which("nvidia-smi") is not None


def compiler() -> str | None:
    """A C++ compiler that torch.compile could use on this machine, or None."""
    named = os.environ.get("CXX")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, ("c++", "g++", "clang++", "cl"))), None)


def keep_memory() -> bool:
    """Tell glibc to keep freed memory instead of handing it back to the kernel. Whether it took the setting.

    By default every activation above 128 kB is mapped, page-faulted and unmapped again in every step.
    """
    trim_threshold, mmap_threshold = -1, -3  # names in glibc's malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt if sys.platform.startswith("linux") else None
    except (AttributeError, OSError):  # another C library
        mallopt = None
    return mallopt is not None and all(mallopt(name, 2**31 - 1) for name in (mmap_threshold, trim_threshold))


def choose(model: ModelConfig, train: TrainConfig) -> list[Choice]:
    """Device, dtype, compile mode and threads for a run. Raises ValueError for a device that is not there."""
    device = choose_device(train.device)
    return [
        device,
        choose_dtype(train.dtype, device.value, model.d_model),
        choose_compile(train.compile, device.value),
        choose_threads(),
    ]


def choose_threads() -> Choice:
    wished = os.environ.get("OMP_NUM_THREADS", "")
    if wished.isdigit() and 0 < int(wished) < cores():
        return Choice("threads", int(wished), "OMP_NUM_THREADS")
    return Choice("threads", cores(), "every core this process may use")


def choose_device(wanted: str) -> Choice:
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    has = ", ".join(device for device, is_there in there.items() if is_there)
    if wanted != "auto":
        kind, _, number = wanted.partition(":")
        if not there.get(kind) or (number and not (kind == "cuda" and number.isdigit() and int(number) < torch.cuda.device_count())):
            raise ValueError(
                f"device {wanted!r} is not there; this machine has {has}" + "; cuda is Nvidia's GPU, mps Apple's" * (kind not in there)
            )
        return Choice("device", wanted, "asked for")
    if there["cuda"]:
        return Choice("device", "cuda", torch.cuda.get_device_name())
    if there["mps"]:
        return Choice("device", "mps", "Apple's GPU")
    return Choice("device", "cpu", f"no GPU found; {processor()}")


def choose_dtype(wanted: str, device: str, d_model: int) -> Choice:
    import torch

    if wanted != "auto":
        return Choice("dtype", wanted, "asked for")
    if device.startswith("cuda"):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return Choice("dtype", "bfloat16" if fast else "float32", "the GPU has it" if fast else "the GPU has no bfloat16")
    if device != "cpu":
        return Choice("dtype", "float32", f"safe on {device}")
    if not has_fast_bfloat16():
        limit = onednn_limit()
        return Choice("dtype", "float32", f"{limit or 'the processor'} has no bfloat16 matrix products")
    if d_model < BFLOAT16_PAYS_FROM:
        return Choice("dtype", "float32", f"bfloat16 is known to pay from d_model {BFLOAT16_PAYS_FROM} up")
    return Choice("dtype", "bfloat16", "the processor multiplies matrices in it; weights and optimizer stay float32")


def choose_compile(wanted: str, device: str) -> Choice:
    if wanted == "off":
        return Choice("compile", False, "asked for")
    found = compiler()
    if wanted == "on":
        if device == "cpu" and not found:
            return Choice("compile", False, "asked for, but there is no C++ compiler here: running eagerly")
        return Choice("compile", True, "asked for")
    if device.startswith("cuda"):
        return Choice("compile", True, "pays on a GPU")
    return Choice(
        "compile", False, "slower than the kernels for a CPU on large models; --compile on takes it" if found else "no C++ compiler here"
    )


def provenance() -> dict[str, Any]:
    """Where a run was made: versions, commit, machine."""
    import torch

    from andrea.version import __version__

    return {
        "andrea": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": processor(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def commit() -> str | None:
    """The commit this package was run from, with + when it was changed since; None when it is no checkout."""
    here = Path(__file__).resolve().parent
    git = ["git", "-C", str(here)]
    try:
        if not (here.parent / ".git").exists():
            return None
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True, timeout=10)
        dirty = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True, timeout=10)
        return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None
