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
MACHINE = 1_000_000 * 1024
# Both versions have the groups of a process, then the files of its group.
GROUPS = {
    1: "9:name=systemd:/\n4:cpu,memory:/box/inner\n0::/\n",
    2: "0::/box/inner\n",
}
LIMIT = {1: "memory/{}/memory.limit_in_bytes", 2: "{}/memory.max"}
USED = {1: "memory/{}/memory.usage_in_bytes", 2: "{}/memory.current"}
STAT = {1: "memory/{}/memory.stat", 2: "{}/memory.stat"}
UNUSED = {1: "inactive_file 1\ntotal_inactive_file", 2: "anon 5\ninactive_file"}


@pytest.mark.parametrize(
    ("version", "folder", "limit", "used", "unused", "expected"),
    [
        (2, "box/inner", "max", 5, 0, MACHINE),
        (2, "box/inner", 900, 700, 50, 250),
        # The limit of the group above; and that of a container, whose group is the top.
        (2, "box", 900, 700, 0, 200),
        (2, "", 900, 700, 0, 200),
        (2, "", 700, 900, 0, 1),
        (1, "box/inner", 900, 700, 50, 250),
        (1, "", 9223372036854771712, 7, 0, MACHINE),
    ],
)
def test_what_is_left_of_machine_and_control_group(
    version, folder, limit, used, unused, expected, tmp_path
):
    def put(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return machine.available_bytes(tmp_path)

    # Other systems do not tell.
    assert machine.available_bytes(tmp_path) == 0
    assert put("proc/meminfo", MEMINFO) == MACHINE
    assert put("proc/self/cgroup", GROUPS[version]) == MACHINE
    place = "sys/fs/cgroup/"
    put(place + USED[version].format(folder), f"{used}\n")
    put(place + STAT[version].format(folder), f"{UNUSED[version]} {unused}\n")
    assert put(place + LIMIT[version].format(folder), f"{limit}\n") == expected


def test_the_peak_is_forgotten():
    block = bytearray(200 * 2**20)
    assert machine.peak_bytes() >= len(block)
    high = machine.peak_bytes()
    del block
    machine.forget_peak()
    assert 0 < machine.resident_bytes() <= machine.peak_bytes() <= high - 150 * 2**20
