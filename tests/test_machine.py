import os
import sys
from pathlib import Path

import pytest
import torch

from andrea import machine
from andrea.config import ModelConfig, TrainConfig


def choices(**train):
    return {c.name: c for c in machine.choose(ModelConfig(n_layer=1), TrainConfig(**train))}


@pytest.mark.parametrize(("wished", "threads"), [("1", 1), ("999", None), ("", None), ("two", None)])
def test_fewer_threads_may_be_wished_for(monkeypatch, wished, threads):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", wished)
    assert machine.choose_threads().value == (threads or 4)


def test_every_choice_has_a_reason():
    made = choices()
    assert made.keys() == {"device", "dtype", "compile", "threads"}
    assert all(c.reason for c in made.values())


def test_what_is_asked_for_is_taken():
    made = choices(device="cpu", dtype="bfloat16", compile="off")
    assert (made["device"].value, made["dtype"].value, made["compile"].value) == ("cpu", "bfloat16", False)


@pytest.mark.parametrize("device", ["tpu", "cuda:99x", "cpu:3", "CPU"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(device):
    with pytest.raises(ValueError, match=f"device '{device}' is not there; this machine has cpu"):
        machine.choose_device(device)


@pytest.mark.parametrize(("fast", "d_model", "dtype"), [(True, 128, "bfloat16"), (True, 64, "float32"), (False, 768, "float32")])
def test_bfloat16_is_for_processors_that_have_it_and_models_that_gain(monkeypatch, fast, d_model, dtype):
    monkeypatch.setattr(machine, "has_fast_bfloat16", lambda: fast)
    assert machine.choose_dtype("auto", "cpu", d_model).value == dtype


@pytest.mark.parametrize(("isa", "limited"), [("AVX2", True), ("avx512_core_vnni", True), ("AVX512_CORE_AMX", False), ("", False)])
def test_a_limit_that_keeps_bfloat16_away_is_noticed_and_named(monkeypatch, isa, limited):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    assert bool(machine.onednn_limit()) is limited
    if limited:
        assert machine.choose_dtype("auto", "cpu", 768).value == "float32"
        assert f"ONEDNN_MAX_CPU_ISA={isa.upper()} has no bfloat16" in machine.choose_dtype("auto", "cpu", 768).reason


def test_the_free_disk_is_that_of_the_nearest_folder_there_is(tmp_path):
    assert machine.free_disk_bytes(tmp_path / "not" / "yet") == pytest.approx(machine.free_disk_bytes(tmp_path), rel=0.1)


def test_without_a_compiler_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent")
    assert machine.compiler() is None
    assert machine.choose_compile("on", "cpu").value is False
    assert "no C++ compiler" in machine.choose_compile("auto", "cpu").reason
    assert machine.choose_compile("on", "cuda").value is True


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks on this system")
def test_cores_are_those_this_process_may_use():
    whole = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(whole)})
        assert machine.cores() == 1
    finally:
        os.sched_setaffinity(0, whole)
    assert 1 <= machine.cores() <= len(whole)


@pytest.mark.parametrize(("content", "cores"), [("max 100000\n", 3), ("150000 100000\n", 1), ("50000 100000\n", 1), ("200000 100000\n", 2)])
def test_a_containers_quota_counts(monkeypatch, tmp_path, content, cores):
    (tmp_path / "cpu.max").write_text(content, encoding="ascii")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert machine.cores() == cores


def test_a_containers_memory_limit_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    free = machine.memory_bytes()
    (tmp_path / "memory.max").write_text("1000000\n", encoding="ascii")
    limited = machine.memory_bytes()
    (tmp_path / "memory.max").unlink()
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("2000000\n", encoding="ascii")  # version 1 of control groups
    older = machine.memory_bytes()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n", encoding="ascii")  # its word for none
    assert machine.memory_bytes() == free
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert machine.memory_bytes() == free
    assert (limited, older) == (1_000_000, 2_000_000)
    assert free is None or free > 2**28


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_glibc_takes_the_setting_that_keeps_memory():
    assert machine.keep_memory() is (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")


def test_where_a_run_was_made_is_told():
    told = machine.provenance()
    assert told["torch"] == torch.__version__
    assert told["cores"] >= 1
    assert told["commit"] is None or len(told["commit"].rstrip("+")) == 12


def test_outside_a_checkout_there_is_no_commit(monkeypatch, tmp_path):
    (tmp_path / "andrea").mkdir()
    monkeypatch.setattr(machine, "__file__", str(Path(tmp_path) / "andrea" / "machine.py"))
    assert machine.commit() is None
