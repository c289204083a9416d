"""What is known of this machine: its processor and its memory."""

import pytest

from zoo.common import machine


def test_the_processor(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_INFO", info)
    # As on other systems.
    assert not machine.computes_bfloat16()
    assert machine.cpu_name()
    for flags, has_bfloat16 in (
        ("fpu avx512f avx512_bf16 vaes", True),
        ("fpu amx_bf16 amx_tile", True),
        ("fpu avx2 avx512f xavx512_bf16", False),
    ):
        info.write_text(
            f"processor\t: 0\nmodel name\t: Some CPU: 5\nflags\t\t: {flags}\n"
            "vmx flags\t: avx512_bf16\n"
        )
        assert machine.computes_bfloat16() is has_bfloat16
        assert machine.cpu_name() == "Some CPU: 5"


MEMINFO = "MemTotal:       24684084 kB\nMemAvailable:    1000000 kB\n"
V1 = "9:name=systemd:/\n4:cpu,memory:/box/inner\n0::/\n"
V2 = "0::/box/inner\n"
MACHINE = 1_000_000 * 1024


def v1(folder, limit, used, unused):
    place = f"sys/fs/cgroup/memory{folder}"
    return {
        "proc/self/cgroup": V1,
        f"{place}/memory.limit_in_bytes": limit,
        f"{place}/memory.usage_in_bytes": used,
        f"{place}/memory.stat": f"inactive_file 1\ntotal_inactive_file {unused}\n",
    }


def v2(folder, limit, used, unused):
    place = f"sys/fs/cgroup{folder}"
    return {
        "proc/self/cgroup": V2,
        f"{place}/memory.max": limit,
        f"{place}/memory.current": used,
        f"{place}/memory.stat": f"anon 5\ninactive_file {unused}\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MACHINE),
        ({"proc/self/cgroup": V2}, MACHINE),
        (v2("/box/inner", "max\n", "5\n", 0), MACHINE),
        (v2("/box/inner", "900\n", "700\n", 50), 250),
        # The limit of the group above; and that of a container, whose group is the top.
        (v2("/box", "900\n", "700\n", 0), 200),
        (v2("", "900\n", "700\n", 0), 200),
        (v2("", "700\n", "900\n", 0), 1),
        (v1("/box/inner", "900\n", "700\n", 50), 250),
        (v1("", "9223372036854771712\n", "7\n", 0), MACHINE),
    ],
)
def test_what_is_left_of_machine_and_control_group(files, expected, tmp_path):
    # Other systems do not tell.
    assert machine.available_bytes(tmp_path) == 0
    for name, text in ({"proc/meminfo": MEMINFO} | files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert machine.available_bytes(tmp_path) == expected


def test_the_peak_is_forgotten():
    block = bytearray(200 * 2**20)
    assert machine.peak_bytes() >= len(block)
    high = machine.peak_bytes()
    del block
    machine.forget_peak()
    assert 0 < machine.resident_bytes() <= machine.peak_bytes() <= high - 150 * 2**20
