import pathlib
import re
import warnings

import peer_models
import pytest

import zoo
from zoo.catalog import families, locate
from zoo.libraries.architectures import implied
from zoo.store import hub

GUIDE = (
    pathlib.Path(__file__).parents[3] / "docs" / "how_to" / "choose_a_model.md"
).read_text(encoding="utf-8")
# In millions, as ../shared/reference/families.md measured timm's models.
PARAMETERS = {
    "deit3_medium_patch16_224": 38.85,
    "vit_betwixt_patch16_reg4_gap_256": 60.40,
    "vit_so150m2_patch16_reg1_gap_256": 136.06,
    "flexivit_base": 86.59,
    "vit_small_patch14_dinov2": 22.06,
    "vit_giant_patch14_reg4_dinov2": 1136.48,
    "vit_so400m_patch14_reg1_tipsv2": 413.39,
    "beit_large_patch16_512": 305.67,
    "beitv2_large_patch16_224": 304.43,
    "vit_so400m_patch14_siglip_384": 428.23,
    "vit_giantopt_patch16_siglip_256": 1163.17,
}


def test_every_model_is_named_once():
    assert len(families.MODELS) == 254
    places = {model.repository for model in families.MODELS.values()}
    assert len(places) == 254
    for handle, model in families.MODELS.items():
        assert zoo.get(handle) is model and handle in zoo.list_models()
        assert re.fullmatch(r"[a-z0-9-]+/[a-z0-9+_-]+", handle)
        assert hub._REPOSITORY.fullmatch(model.repository)
        assert 196 <= model.image_size <= 560
        assert implied(model.architecture) is not None, handle
        # Sizes in a name are the image's.
        if size := re.search(r"-(\d{3})$", handle):
            assert int(size[1]) == model.image_size


def test_parameters():
    found = {
        (model.architecture, round(model.parameters / 1e6, 2))
        for model in families.MODELS.values()
        if model.architecture in PARAMETERS and model.classes in (0, 1000)
    }
    assert found == {*PARAMETERS.items()}


def test_published_figures():
    with_figures = [model for model in families.MODELS.values() if model.accuracies]
    assert len(with_figures) == 4 + 8 + 32 + 3 + 39 + 35 + 9
    assert zoo.get("deit3-b16/imagenet2012-224").top1 == 83.786
    assert zoo.get("eva02-l14/mim38m+imagenet21k+imagenet2012").top1 == 90.052
    figure = ("imagenet2012", "zero-shot top1", 68.34, 224)
    assert zoo.get("clip-b16/openai").accuracies[0][:4] == figure
    # Of a probe or of texts, not of the model as it is.
    assert zoo.get("clip-b16/openai").top1 is None
    assert zoo.get("dinov2-g14/lvd142m").top1 is None
    handles = {handle for (handle,) in families._ACCURACIES}
    assert handles <= families.MODELS.keys()


def test_the_guide_has_the_figures_of_the_cards():
    rows = re.findall(r"(?m)^\| `([\w+/-]+)` \| ([\d.,]+) \|(.*)\|(.*)\|(.*)\|$", GUIDE)
    assert len(rows) == 11
    for handle, millions, linear, neighbours, licence in rows:
        card = zoo.get(handle)
        assert float(millions.replace(",", "")) == round(card.parameters / 1e6, 1)
        assert licence.strip() == card.licence
        figures = {one.metric: one.value for one in card.accuracies}
        for metric, text in (
            ("a linear probe", linear),
            ("nearest neighbours", neighbours),
        ):
            said = text.strip(" %")
            assert said == "" or float(said) == figures[f"top1 of {metric}"]


@pytest.mark.slow
def test_rows_are_what_timm_says(timm):
    cards = families.MODELS.values()
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
    # What timm writes beside the arrays of both.
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
    assert families.similar("timm/deit3_huge_patch14_224") == huge
    for name in ("clip_224.openai", "clip_quickgelu_224.openai"):
        assert families.similar(f"vit_base_patch16_{name}") == ["clip-b16/openai"]


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
