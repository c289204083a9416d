"""Which of timm's published Vision Transformers are read, by settings and shapes."""

import json
import math
import os
import re
import warnings

import peer_models
import pytest
from safetensors_files import joined

import zoo
from zoo.libraries import architectures

MODULES = (
    "vision_transformer", "vision_transformer_hybrid", "vision_transformer_relpos",
    "vision_transformer_sam", "deit", "beit", "eva", "naflexvit",
)  # fmt: skip
# docs/models.md says so of timm 1.0.31.
READ = 411
# These have norms, positions, stems or poolings that are not computed.
REFUSED = re.compile(
    r"aimv2_\w+|samvit_\w+|vit_s?relpos_\w+|vit_\w+_rope_mixed_\w+|vit_\w+_sapiens2|"
    r"vit_(d|p|dp)(wee|little)_\w+|vit_base_mci_224|test_vit3|"
    r"naflexvit_\w+_(par_gap|parfac_gap|radio_v[34])"
)


def write_sparse(path, shapes):
    """Writes a safetensors file of zeros, which take no space on the disk."""
    header, end = {}, 0
    for key, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    start = path.write_bytes(joined(json.dumps(header)))
    os.truncate(path, start + end)


@pytest.mark.slow
def test_published_tags_are_read_or_refused_by_name(timm, tmp_path):
    read, refused = [], {}
    for tag, (settings, shapes) in timm(peer_models.tags_of_timm, MODULES).items():
        (tmp_path / "config.json").write_text(settings)
        write_sparse(tmp_path / "model.safetensors", shapes)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*quick GELU")
                zoo.read(tmp_path)
            read.append(tag)
        except zoo.CheckpointError as error:
            refused[tag] = str(error)
    assert len(read) >= READ
    for tag, message in refused.items():
        name = tag.partition(".")[0]
        assert f"timm's {name}, which is not read" in message
        assert REFUSED.fullmatch(name), tag


@pytest.mark.parametrize(
    ("name", "implied"),
    [
        ("vit_base_patch16_224_miil", {"num_heads": 12, "qkv_bias": False}),
        ("vit_intern300m_patch14_448", {"num_heads": 16, "final_norm": False}),
        ("vit_gigantic_patch14_224", {"num_heads": 16}),
        ("vit_base_patch32_plus_256", {"num_heads": 14, "init_values": True}),
        ("vit_small_patch16_36x1_224", {"num_heads": 6, "init_values": True}),
        ("beit3_giant_patch14_336", {"num_heads": 16, "mlp_norm_inside": True}),
        ("vit_large_patch16_rope_ape_224", {"num_heads": 16, "rotary": "axial"}),
        ("vit_giant_patch16_radio_v3", {"num_heads": 24, "reg_tokens": 7}),
        # Branches side by side are not read.
        ("vit_small_patch16_18x2_224", None),
        ("vit_pwee_patch16", None),
    ],
)
def test_names_that_need_no_code_imply_their_arguments(name, implied):
    found = architectures.implied(name)
    assert (found is None) if implied is None else implied.items() <= found.items()
