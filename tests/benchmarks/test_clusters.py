"""What more devices would do, by arithmetic."""

import pathlib

import pytest

from benchmarks import clusters, devices, meshes, photo_costs

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "scaling.md"


@pytest.mark.parametrize("module", [clusters, meshes, photo_costs])
def test_the_page_has_what_the_command_prints(module, capsys):
    module.main()
    assert capsys.readouterr().out in PAGE.read_text()


def test_meshes_by_hand():
    config = meshes.GIANT
    found = meshes.step(config, 64, 2, 4)
    # A billion parameters, of which three numbers are kept by eight devices.
    assert found.held == pytest.approx(12 * 1.01e9 / 8, rel=0.01)
    # Half of a quarter of the weights, three times.
    assert found.along_data == pytest.approx(3 / 8 * 4 * 1.01e9, rel=0.01)
    # 32 images of 257 tokens of 1408 numbers, four times in each of 40 blocks.
    tokens = 4 * 32 * 257 * 1408
    assert found.along_model == pytest.approx(4 * 40 * 2 * 3 / 4 * tokens)
    alone = meshes.step(config, 64, 1, 1)
    assert alone.sending == 0
    assert alone.computing == pytest.approx(8 * found.computing)


def test_costs_by_hand():
    slow = photo_costs.Machine("", 0.36, 4, 1e9)
    # Two cores answer 19.1 a second, and one prepares 806.
    each = 1 / (2 * 19.1) + 1 / (4 * 806)
    assert slow.photos_per_second("ViT-B_16", "int8") == pytest.approx(1 / each)
    # 17.6 billion multiply-adds of B/16 at 40% of the peak.
    quick = slow._replace(operations=1e13)
    expected = 0.4 * 1e13 / 2 / 17.6e9
    found = quick.photos_per_second("ViT-B_16", "bfloat16")
    assert found == pytest.approx(expected, rel=0.01)
    # Its cores prepare no more than this.
    quick = slow._replace(operations=1e16)
    assert quick.photos_per_second("ViT-B_16", "bfloat16") == 4 * 806


def test_sums_by_hand():
    one = clusters.Cluster("", 8, 1e15, 8, 450e9)
    # Each of 8 sends 7/8 of the bytes, twice.
    assert one.reduce_seconds(450e9) == pytest.approx(1.75)
    many = one._replace(devices=64, outer=50e9)
    # And 1/8 of them to 7 other machines.
    assert many.reduce_seconds(450e9) == pytest.approx(1.75 + 1.75 * 450 / 8 / 50)
    # arXiv 2010.11929, table 1: 86 million parameters.
    assert float(clusters.row("ViT-B_16", one)[2]) == pytest.approx(4 * 86, rel=0.01)


def test_bytes_of_a_compiled_program():
    line = "%a = (f32[2,3]{1,0}, f32[]) all-reduce(f32[2,3]{1,0} %b, f32[] %c), to=%d"
    assert devices.reduced_bytes(line) == 4 * (2 * 3 + 1)
