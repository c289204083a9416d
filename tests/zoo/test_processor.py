"""What is known of the processor."""

import pytest

from zoo import processor


@pytest.mark.parametrize(
    ("flags", "has_it"),
    [
        ("fpu avx512f avx512_bf16 vaes", True),
        ("fpu amx_bf16 amx_tile", True),
        ("fpu avx2 avx512f xavx512_bf16", False),
    ],
)
def test_bfloat16(flags, has_it, tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    info.write_text(
        f"processor\t: 0\nmodel name\t: Some CPU: 5\nflags\t\t: {flags}\n"
        "vmx flags\t: avx512_bf16\n"
    )
    monkeypatch.setattr(processor, "_INFO", info)
    assert processor.computes_bfloat16() is has_it
    assert processor.cpu_name() == "Some CPU: 5"


def test_other_systems(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "_INFO", tmp_path / "cpuinfo")
    assert not processor.computes_bfloat16()
    assert processor.cpu_name()
