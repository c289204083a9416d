"""The memory that is left to a process."""

import pytest

from zoo.memory import (
    available_bytes,
    forget_peak,
    peak_bytes,
    resident_bytes,
)

MEMINFO = "MemTotal:       24684084 kB\nMemAvailable:    1000000 kB\n"
V1 = "9:name=systemd:/\n4:cpu,memory:/box/inner\n0::/\n"
V2 = "0::/box/inner\n"
MACHINE = 1_000_000 * 1024


def system(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v1(folder, limit, used, unused):
    place = f"sys/fs/cgroup/memory{folder}"
    return {
        f"{place}/memory.limit_in_bytes": limit,
        f"{place}/memory.usage_in_bytes": used,
        f"{place}/memory.stat": f"inactive_file 1\ntotal_inactive_file {unused}\n",
    }


def v2(folder, limit, used, unused):
    place = f"sys/fs/cgroup{folder}"
    return {
        f"{place}/memory.max": limit,
        f"{place}/memory.current": used,
        f"{place}/memory.stat": f"anon 5\ninactive_file {unused}\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MACHINE),
        ({"proc/self/cgroup": V2}, MACHINE),
        ({"proc/self/cgroup": V2, **v2("/box/inner", "max\n", "5\n", 0)}, MACHINE),
        ({"proc/self/cgroup": V2, **v2("/box/inner", "900\n", "700\n", 50)}, 250),
        # The limit of the group above; and that of a container, whose group is the top.
        ({"proc/self/cgroup": V2, **v2("/box", "900\n", "700\n", 0)}, 200),
        ({"proc/self/cgroup": V2, **v2("", "900\n", "700\n", 0)}, 200),
        ({"proc/self/cgroup": V2, **v2("", "700\n", "900\n", 0)}, 0),
        ({"proc/self/cgroup": V1, **v1("/box/inner", "900\n", "700\n", 50)}, 250),
        (
            {"proc/self/cgroup": V1, **v1("", "9223372036854771712\n", "7\n", 0)},
            MACHINE,
        ),
    ],
)
def test_what_is_left_of_machine_and_control_group(files, expected, tmp_path):
    root = system(tmp_path, {"proc/meminfo": MEMINFO} | files)
    assert available_bytes(root) == expected


def test_other_systems_do_not_tell(tmp_path):
    assert available_bytes(tmp_path) == 0


def test_the_peak_is_forgotten():
    block = bytearray(200 * 2**20)
    assert peak_bytes() >= len(block)
    high = peak_bytes()
    del block
    forget_peak()
    assert 0 < resident_bytes() <= peak_bytes() <= high - 150 * 2**20
