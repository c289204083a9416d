"""The cards of released models and of those of the hub, and the names of classes."""

import hashlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse
import warnings

import peer_models
import pytest
from made_index import B16

import zoo
from zoo import store
from zoo.catalog import families, locate
from zoo.catalog.similar import similar_handles
from zoo.libraries.architectures import implied
from zoo.store import hub

EVERY = map(zoo.get, zoo.list_models())
IDS = [f"n{index:08d}" for index in range(21843)]
CARDS = [card for card in EVERY if isinstance(card, zoo.ModelCard)]
# Parameters at 224 with 1000 classes and no pre_logits (the released test of
# parameter counts), width, and cells per side of the patch grid at 224.
PARAMETERS = {
    "ViT-Ti_16": (5_717_416, 192, 14),
    "ViT-S_16": (22_050_664, 384, 14),
    "ViT-S_32": (22_878_952, 384, 7),
    "ViT-B_8": (86_576_872, 768, 28),
    "ViT-B_16": (86_567_656, 768, 14),
    "ViT-B_32": (88_224_232, 768, 7),
    "ViT-L_16": (304_326_632, 1024, 14),
    "ViT-L_32": (306_535_400, 1024, 7),
    "ViT-H_14": (632_045_800, 1280, 16),
    "R+ViT-Ti_16": (6_337_704, 192, 7),
    "R26+ViT-S_32": (36_431_912, 384, 7),
    "R26+ViT-B_32": (101_383_976, 768, 7),
    "R50+ViT-B_16": (98_659_112, 768, 14),
    "R50+ViT-L_32": (328_994_856, 1024, 7),
}
IN21K_IN1K = "imagenet21k+imagenet2012"
TOP1 = {
    "vit-b16/imagenet21k": None,
    f"vit-b8/{IN21K_IN1K}": None,
    f"vit-b16/{IN21K_IN1K}": 84.21,
    f"vit-b16/{IN21K_IN1K}-224": 81.2,
    f"vit-b32/{IN21K_IN1K}": 81.28,
    f"vit-l32/{IN21K_IN1K}": 81.51,
    "vit-b32/sam": 73.7,
    "vit-b16-gap-norep/gsam": None,
    f"vit-l16/augreg-{IN21K_IN1K}": 85.59,
    f"vit-b8/augreg-{IN21K_IN1K}": 85.58,
}
GUIDE = (
    pathlib.Path(__file__).parents[3] / "docs" / "how_to" / "choose_a_model.md"
).read_text(encoding="utf-8")
# In millions, as timm's models have them.
MILLIONS = {
    "deit3_medium_patch16_224": 38.85,
    "vit_wee_patch16_reg1_gap_256": 13.42,
    "vit_little_patch16_reg4_gap_256": 22.52,
    "vit_mediumd_patch16_reg4_gap_256": 64.11,
    "vit_betwixt_patch16_reg4_gap_256": 60.40,
    "vit_so150m_patch16_reg4_gap_256": 134.13,
    "vit_so150m2_patch16_reg1_gap_256": 136.06,
    "vit_small_patch14_dinov2": 22.06,
    "vit_giant_patch14_reg4_dinov2": 1136.48,
    "vit_so400m_patch14_reg1_tipsv2": 413.39,
    "beit_large_patch16_512": 305.67,
    "vit_so400m_patch14_siglip_384": 428.23,
    "vit_giantopt_patch16_siglip_256": 1163.17,
}


def test_handles_and_urls_are_unique_and_complete():
    assert len(CARDS) == 9 + 8 + 5 + 4 + 10 + 10
    assert len({card.handle for card in CARDS}) == len(CARDS)
    assert len({card.url for card in CARDS}) == len(CARDS)
    variants = {card.variant for card in CARDS if card.pooling == "token"}
    assert variants == set(PARAMETERS)
    assert list(zoo.VARIANTS) == list(PARAMETERS)
    for card in CARDS:
        assert zoo.get(card.handle) is card
        assert zoo.find(card.variant, card.release) is card
        assert card.release in zoo.releases(card.variant)
        assert card.licence == "Apache-2.0"
        assert card.input_range == (-1, 1)
        assert card.sha256 is None
        assert "+" not in card.url
        assert card.url.startswith("https://storage.googleapis.com/vit_models/")
        # Head and training data follow from the release.
        assert card.usable_head == (card.release != "imagenet21k")
        assert card.classes == (21843 if card.release.endswith("21k") else 1000)
        assert (card.representation_size is None) == card.usable_head
        expected = card.release.removeprefix("augreg-").removesuffix("-224").split("+")
        if card.release in ("sam", "gsam"):
            expected = ["imagenet2012"]
        assert list(card.training_data) == expected


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.handle)
def test_parameters_are_those_of_the_released_code(card):
    variant = card.variant.removesuffix("-gap-norep")
    parameters, hidden_size, side = PARAMETERS[variant]
    architecture = zoo.VARIANTS[variant]
    assert architecture.count_parameters(224, 1000) == parameters
    assert architecture.hidden_size == hidden_size
    assert architecture.stride == (224 // side, 224 // side)
    if card.pooling == "gap":
        # There is no class token, and no position of it.
        assert card.parameters == parameters - 2 * hidden_size
        return
    if card.representation_size:
        assert card.representation_size == hidden_size
        parameters += hidden_size * (hidden_size + 1)
    parameters += (card.classes - 1000) * (hidden_size + 1)
    positions = (side * card.image_size // 224) ** 2 - side**2
    assert card.parameters == parameters + positions * hidden_size
    if card.file_size:
        # Four bytes each, in MiB; this file has them three times, and 300 bytes more
        # an array. The listing rounds to 0.1 MiB, 0.01 GiB, and for these to 1 MiB.
        copies = 3 if card.handle == "vit-s16/sam" else 1
        rounding = 0.005 * 1024 if card.file_size > 2**30 else 0.05
        rounding = 0.5 if card.release == "augreg-imagenet21k" else rounding
        more = (card.file_size - copies * 4 * card.parameters) / 2**20
        assert -rounding <= more <= rounding + (0.25 if copies == 3 else 0.11)


def test_accuracies_citations_and_inferences():
    for card in CARDS:
        assert (card.top1 is None) == (card.top1_source is None)
        for accuracy in card.accuracies:
            assert 50 < accuracy.value < 100 and accuracy.source
            as_released = accuracy.metric == "top1"
            assert as_released == (card.training_data[-1] == "imagenet2012")
            assert not as_released or accuracy.image_size == card.image_size
        fields = [note.field for note in card.inferred]
        assert all(hasattr(card, note.field) and note.reason for note in card.inferred)
        assert (fields == ["representation_size"]) == (card.release == "sam")
        assert ("url" in fields) == (card.release == "gsam")
    assert {handle: zoo.get(handle).top1 for handle in TOP1} == TOP1
    # Every fine-tuned file but one, and two trained with SAM.
    assert sum(card.top1 is not None for card in CARDS) == 7 + 2 + 10
    card = zoo.get("vit-b16/imagenet21k")
    paper = {a.data_set: a.value for a in card.accuracies if a.source.startswith("ViT")}
    assert list(paper.values()) == [98.95, 91.67, 83.97, 88.35, 99.38, 94.43]
    papers = {card.citation.arxiv for card in CARDS}
    assert papers == {"2010.11929", "2106.10270", "2106.01548", "2203.08065"}
    assert card.citation.url == "https://arxiv.org/abs/2010.11929"
    bibtex = card.citation.bibtex
    assert bibtex.startswith("@article{dosovitskiy2020vit,\n  title={An Image")
    assert bibtex.count("{") == bibtex.count("}")


@pytest.mark.parametrize(
    ("variant", "release", "path", "image_size"),
    [
        ("ViT-B_16", f"{IN21K_IN1K}-224", f"{IN21K_IN1K}/ViT-B_16-224", 224),
        # Without a size, that which the paper recommends.
        ("R50+ViT-B_16", IN21K_IN1K, f"{IN21K_IN1K}/R50+ViT-B_16", 384),
        ("ViT-B_16", f"{IN21K_IN1K}-384", f"{IN21K_IN1K}/ViT-B_16", 384),
        ("ViT-B_16", "augreg-imagenet21k", f"augreg/{B16}", 224),
        ("ViT-B_16-gap-norep", "gsam", "gsam/ViT-B_16-gap-norep", 224),
    ],
)
def test_urls_are_those_of_the_released_files(variant, release, path, image_size):
    card = zoo.find(variant, release)
    url = f"https://storage.googleapis.com/vit_models/{path}.npz"
    assert urllib.parse.unquote(card.url) == url
    assert (card.image_size, card.file) == (image_size, f"{path}.npz")
    # With its size, a handle is understood too.
    assert zoo.get(f"{card.handle.partition('/')[0]}/{release}") is card


def test_lists_and_defaults():
    for variant in PARAMETERS:
        release = zoo.default_release(variant)
        assert zoo.find(variant, release).image_size == 224
    assert zoo.default_release("ViT-B_16") == "imagenet21k"
    assert zoo.default_release("R26+ViT-S_32") == "augreg-imagenet21k"
    # One that was not fine-tuned at 384.
    for release in (f"augreg-{IN21K_IN1K}", f"augreg-{IN21K_IN1K}-224"):
        assert zoo.find("ViT-B_8", release).image_size == 224
    assert zoo.list_models("vit-h14/*") == ["vit-h14/imagenet21k"]
    assert len(zoo.list_models("*/sam")) == 5
    assert len(zoo.list_models("*augreg*")) == 20
    assert zoo.list_models("resnet*") == []
    assert zoo.get("vit-b16/gsam") is zoo.get("vit-b16-gap-norep/gsam")
    assert set(zoo.LABEL_FILES) == {"imagenet21k_ids", "imagenet21k_lemmas"}


@pytest.mark.parametrize(
    ("function", "names", "message"),
    [
        (zoo.get, ["vitb16/imagenet21k"], "'vitb16/imagenet21k'.*vit-b16/image"),
        (zoo.get, ["vit-h14/sam"], "vit-h14/imagenet21k"),
        (zoo.get, ["vit-b16-gap-norep/sam"], "-gap-norep/sam'.*p-norep/gsam"),
        (zoo.get, ["vit_base_patch16_224.augreg_in21k"], r"b16/augreg-imagenet21k\?"),
        (zoo.get, ["?"], "list_models"),
        (zoo.get, ["vit_tiny_patch16_224"], "mean vit-ti16/augreg-imagenet21k or"),
        (zoo.get, ["dinov2-b14/lvd142"], "Did you mean dinov2-b14/lvd142m"),
        (zoo.get, ["vit_small_patch14_dinov2.lvd142m"], "mean dinov2-s14/lvd142m"),
        (zoo.find, ["ViT-H_14", "sam"], "ViT-H_14.*'sam'.*imagenet21k"),
        (zoo.find, ["ViT-B_8", f"{IN21K_IN1K}-38"], "released as.*-38.*Choose"),
        (zoo.find, ["ViT-B/16", "sam"], "'ViT-B/16'.*ViT-B_16"),
        (zoo.find, ["ViT-B_16", "augreg_in21k"], "mean augreg-imagenet21k.* Choose "),
        (zoo.releases, ["ViT-B_1"], "choose [^,]*, [^,]* or [^,]*$"),
        (zoo.default_release, ["R50+ViT-L_16"], "R50"),
        (zoo.default_release, ["ViT-B_16-gap-norep"], "not pre-trained.*choose gsam"),
    ],
)
def test_a_name_that_is_none_is_told_what_there_is(function, names, message):
    with pytest.raises(zoo.CatalogError, match=message):
        function(*names)


def test_importing_zoo_is_silent_and_imports_nothing_heavy():
    code = (
        "import sys, zoo\n"
        "heavy = 'keras tensorflow jax torch requests urllib3 filelock tqdm'.split()\n"
        "heavy += 'rich pandas h5py huggingface_hub train keras_vit'.split()\n"
        "assert not set(heavy) & set(sys.modules), set(heavy) & set(sys.modules)\n"
        "import numpy, zoo.photos\n"
        "zoo.photos.prepare(numpy.zeros((4, 4, 3), 'uint8'), 2)\n"
        "assert not {'keras', 'tensorflow', 'PIL'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_model_is_named_once():
    assert len(families.MODELS) == 254 + 21
    places = {model.repository for model in families.MODELS.values()}
    assert len(places) == 254 + 21
    for handle, model in families.MODELS.items():
        assert zoo.get(handle) is model and handle in zoo.list_models()
        assert re.fullmatch(r"[a-z0-9-]+/[a-z0-9+_-]+", handle)
        assert hub._REPOSITORY.fullmatch(model.repository)
        assert 196 <= model.image_size <= 1280
        is_known = implied(model.architecture) is not None
        assert is_known == (model.architecture != "EoMT"), handle
        # Sizes in a name are the image's.
        if size := re.search(r"-(\d{3,4})$", handle):
            assert int(size[1]) == model.image_size


def test_parameters_of_models_of_the_hub():
    found = {
        (model.architecture, round(model.parameters / 1e6, 2))
        for model in families.MODELS.values()
        if model.architecture in MILLIONS and model.classes in (0, 1000)
    }
    assert found == {*MILLIONS.items()}


def test_published_figures():
    with_figures = [model for model in families.MODELS.values() if model.accuracies]
    assert len(with_figures) == 4 + 8 + 32 + 3 + 39 + 35 + 9 + 21
    assert zoo.get("deit3-b16/imagenet2012-224").top1 == 83.786
    figure = ("imagenet2012", "zero-shot top1", 68.34, 224)
    assert zoo.get("clip-b16/openai").accuracies[0][:4] == figure
    # That accuracy is with texts, not of the model as it is.
    assert zoo.get("clip-b16/openai").top1 is None
    handles = {handle for (handle,) in families._ACCURACIES}
    assert handles <= families.MODELS.keys()


def test_the_guide_has_the_figures_of_the_cards():
    rows = re.findall(r"(?m)^\| `([\w+/-]+)` \| ([\d.,]+) \|(.*)\|(.*)\|(.*)\|$", GUIDE)
    assert len(rows) == 11
    for handle, millions, linear, near, licence in rows:
        card = zoo.get(handle)
        assert float(millions.replace(",", "")) == round(card.parameters / 1e6, 1)
        assert licence.strip() == card.licence
        figures = {one.metric: one.value for one in card.accuracies}
        for metric, text in ("a linear probe", linear), ("nearest neighbours", near):
            said = text.strip(" %")
            assert said == "" or float(said) == figures[f"top1 of {metric}"]


def test_rows_of_eomt_are_what_its_networks_have():
    """The sizes of DINOv2 and DINOv3, and queries; figures as their authors say."""
    sizes = {"s": (384, 12, 6, 1536), "b": (768, 12, 12, 3072)}
    sizes |= {"l": (1024, 24, 16, 4096), "g": (1536, 40, 24, 4096)}
    cards = [one for one in families.MODELS.values() if one.architecture == "EoMT"]
    assert len(cards) == 14 + 7
    for card in cards:
        *_, variant = card.handle.partition("/")[0].split("-")
        v3 = {"tokens_with_positions": "none", "rotary": "dinov3"}
        v3 |= {"qkv_bias": "query and value"}
        v2 = {"tokens_with_positions": "patches"}
        config = zoo.ViTConfig(
            *sizes[variant[0]],
            **{"patch_size": 16, "layer_scale": True, "num_registers": 4},
            **{"activation": "swiglu" if variant == "g16" else "gelu"},
            **{"num_queries": 100 if "semantic" in card.handle else 200},
            **{"query_blocks": 4, "upscale_blocks": 2},
            **(v3 if card.added_to else v2),
        )
        # One output more, for no object.
        parameters = config.count_parameters(card.image_size, card.classes + 1)
        assert parameters == card.parameters
        assert card.is_free == (not card.added_to)
        assert str(card.image_size) in card.repository
    best = zoo.get("eomt-g16/coco-panoptic-1280")
    assert best.accuracies[0][1:4] == ("panoptic quality", 59.2, 1280)
    assert best.top1 is None


def test_differences_to_gated_weights_are_refused_by_name():
    gated = "facebook/dinov3-vitl16-pretrain-lvd1689m, which are gated: add them up"
    with pytest.raises(zoo.CatalogError, match=gated):
        zoo.locate("eomt-dinov3-l16/coco-panoptic-640")


@pytest.mark.slow
def test_rows_are_what_timm_says(timm):
    cards = [one for one in families.MODELS.values() if one.architecture != "EoMT"]
    names = {
        card.handle: f"{card.architecture}.{card.repository.partition('.')[2]}"
        for card in cards
    }
    said = timm(peer_models.cards_of_timm, names)
    for card in cards:
        assert said[card.handle] == (
            *(card.repository, card.image_size, card.classes, card.parameters),
            card.licence,
        ), card.handle


def test_one_repository_of_two_networks(goldens, monkeypatch):
    # timm writes such files beside the arrays of both.
    folder = goldens / "peers" / "clip_timm"
    monkeypatch.setattr(hub, "fetch", lambda handle: folder)
    for handle, is_quick in (("clip-b16/openai", True), ("clip-b16/laion2b", False)):
        card = zoo.get(handle)
        assert card.semantics.activation == ("quick_gelu" if is_quick else None)
        assert ("_clip_quickgelu_" in card.architecture) == is_quick
        found = locate.read_located(handle).config.activation
        assert found == ("quick_gelu" if is_quick else "gelu")
    assert locate.read_located(folder).config.activation == "gelu"


def test_names_of_timm_are_understood():
    huge = ["deit3-h14/imagenet2012", "deit3-h14/imagenet21k+imagenet2012"]
    assert similar_handles("timm/deit3_huge_patch14_224") == huge
    for name in ("clip_224.openai", "clip_quickgelu_224.openai"):
        assert similar_handles(f"vit_base_patch16_{name}") == ["clip-b16/openai"]


@pytest.mark.parametrize("here", [None, "somewhere"])
def test_a_licence_is_said_before_the_download(monkeypatch, here):
    monkeypatch.setattr(hub, "cached", lambda handle: here)
    monkeypatch.setattr(hub, "fetch", lambda handle: handle)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for handle, place in (
            ("dinov2-s14/lvd142m", "hf://timm/vit_small_patch14_dinov2.lvd142m"),
            ("mae-b16/imagenet2012", "hf://timm/vit_base_patch16_224.mae"),
        ):
            assert locate.fetch_card(zoo.get(handle)) == place
    expected = "mae-b16/imagenet2012 has the licence cc-by-nc-4.0, for non-commercial"
    said = [str(one.message)[: len(expected)] for one in said]
    assert said == ([] if here else [expected])


def test_terms_are_said():
    free = {"apache-2.0", "mit"}
    for card in families.MODELS.values():
        assert card.is_free == (card.licence in free), card.handle
        assert card.is_free or card.terms.startswith(f"{card.licence}, ")
    assert zoo.get("dinov3-b16/lvd1689m").terms.endswith("read them first")


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Puts a list into the cache, and returns its path."""
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")

    def put(data_set, lines):
        path = store._cached_path(zoo.LABEL_FILES[data_set])
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return put


def test_imagenet2012_is_in_the_package():
    """Written as `keras.applications` downloads it, it has the checksum there."""
    names = zoo.class_names("imagenet2012")
    assert all(type(row) is tuple for row in names)
    assert names[207] == ("n02099601", "golden retriever")
    written = [[number, name.replace(" ", "_")] for number, name in names]
    text = json.dumps({str(index): row for index, row in enumerate(written)})
    keras = pathlib.Path(importlib.util.find_spec("keras").origin).parent
    utils = (keras / "src" / "applications" / "imagenet_utils.py").read_text()
    assert f'"{hashlib.md5(text.encode()).hexdigest()}"' in utils


def test_imagenet21k_pairs_ids_with_lemmas(put):
    with pytest.raises(zoo.StoreError, match="imagenet21k_wordnet_ids.txt"):
        zoo.class_names("imagenet21k")
    put("imagenet21k_ids", IDS)
    put("imagenet21k_lemmas", (f"é, {name}" for name in IDS))
    names = zoo.class_names("imagenet21k")
    assert len(names) == 21843
    assert names[21842] == ("n00021842", "é, n00021842")
    for lemmas in (["organism, being"], [*IDS[1:], "a\x1b[2J"]):
        path = put("imagenet21k_lemmas", lemmas)
        told = f"{path} should list the 21843 .*delete"
        with pytest.raises(zoo.StoreError, match=told):
            zoo.class_names("imagenet21k")
    with pytest.raises(zoo.CatalogError, match="'cifar10'.*imagenet2012, imagenet21k"):
        zoo.class_names("cifar10")


@pytest.mark.parametrize(
    "ids",
    [["organism"] * 21843, ["n00000001\x1b[2J"] * 21843, IDS[:-1], [*IDS, "n9"], []],
)
def test_a_file_that_is_no_list_of_ids(put, ids):
    path = put("imagenet21k_ids", ids)
    put("imagenet21k_lemmas", IDS)
    with pytest.raises(zoo.StoreError, match=f"{path} and .* list the 21843 classes"):
        zoo.class_names("imagenet21k")
