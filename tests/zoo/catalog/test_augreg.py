import made_index
import pytest
from made_index import B16, B16_30, B16_I1K, R26, R26_OTHER

import zoo
from zoo.catalog import augreg, index_file

INDEX = "/vit_models/augreg/index.csv"
PETS = f"{R26}--oxford_iiit_pet-steps_0k-lr_0.003-res_384"


@pytest.fixture(autouse=True)
def index(bucket):
    """Where the served index is."""
    return bucket.folder / "augreg" / "index.csv"


def test_best_is_the_file_that_the_released_notebook_picks():
    card = augreg.best("R26_S_32", pretrain="i21k", finetune="oxford_iiit_pet")
    # Its validation accuracy at 224 is the same; and a file of another pre-training,
    # worse upstream, has a better one.
    assert card.release == PETS
    assert card.handle == f"augreg/{PETS}"
    assert card.url == f"https://storage.googleapis.com/vit_models/augreg/{PETS}.npz"
    assert (card.variant, card.image_size, card.classes) == ("R26+ViT-S_32", 384, 37)
    # The notebook prints its size, 137.8 MiB.
    assert 4 * card.parameters / 2**20 == pytest.approx(137.8, abs=0.15)
    test, validation = card.accuracies
    assert test[:4] == ("oxford_iiit_pet", "top1", 94.1946, 384)
    assert validation.value == 96.7391
    smaller = augreg.best("R26_S_32", finetune="oxford_iiit_pet", image_size=224)
    assert smaller.release == PETS.replace("384", "224")


def test_best_chooses_by_validation_accuracy_alone():
    card = augreg.best("B_16", finetune="cifar100")
    # Not lr_0.01, whose test accuracy is higher, nor lr_0.001, which has none.
    assert card.release == f"{B16}--cifar100-steps_10k-lr_0.003-res_384"
    assert card.training_data == ("imagenet21k", "cifar100")
    assert card.notes == (
        "Pre-trained for 300 epochs; fine-tuned for 10000 steps of 512 images with "
        "learning rate 0.003."
    )
    unmeasured = zoo.get(f"{B16}--cifar100-steps_10k-lr_0.001-res_384")
    assert unmeasured.accuracies == ()


@pytest.mark.parametrize(
    ("model", "pretrain", "file", "data_set"),
    [
        ("B_16", "i21k", B16, "imagenet21k"),
        ("B/16", "i1k", B16_I1K, "imagenet2012"),
        ("ViT-B_16", "i21k_30", B16_30, "imagenet21k"),
    ],
)
def test_best_pre_trained(model, pretrain, file, data_set):
    card = augreg.best(model, pretrain)
    assert card.file == f"augreg/{file}.npz"
    assert card.training_data == (data_set,)
    assert (card.variant, card.image_size) == ("ViT-B_16", 224)
    tuned = augreg.best(model, pretrain, "cifar100")
    assert tuned.file.startswith(f"augreg/{file}--cifar100")
    assert tuned.training_data == (data_set, "cifar100")


def test_recommended_files_are_the_catalogues_cards(monkeypatch):
    assert augreg.best("B_16") is zoo.get("vit-b16/augreg-imagenet21k")
    card = zoo.get("vit-b16/augreg-imagenet21k+imagenet2012")
    assert augreg.best("B_16", finetune="imagenet2012") is card
    # And need no index.
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_VIT_CACHE", "/nowhere")
    assert zoo.get(B16) is zoo.get("vit-b16/augreg-imagenet21k")


def test_every_file_name_is_a_handle():
    names = augreg.file_names()
    made = {row["adapt_filename"] for row in made_index.rows()}
    assert set(names) == made | set(made_index.PRETRAINED)
    assert len(zoo.list_models("augreg/B_16-*--cifar100-*")) == 5
    assert zoo.list_models("augreg/L_16*") == []
    for name in names:
        card = zoo.get(name)
        assert card.file == f"augreg/{name}.npz"
        assert zoo.get(f"augreg/{name}") == zoo.get(f"{name}.npz") == card
        assert zoo.get(card.handle) == card
        assert zoo.find(card.variant, name) == card
        assert zoo.find(card.variant, card.release) == card
        assert card.citation.key == "steiner2021augreg"
        assert card.usable_head
        assert card.representation_size is None
        image_size = int(name.rpartition("res_")[2]) if "--" in name else 224
        assert card.image_size == image_size
        assert card.parameters > 1e7


def test_what_cards_say():
    for data_set, classes, inferred in ("kitti", 4, ["classes"]), ("resisc45", 45, []):
        card = augreg.best("R26+ViT-S_32", finetune=data_set)
        assert card.classes == classes
        assert [note.field for note in card.inferred] == inferred
    card = zoo.get(B16_I1K)
    assert card.classes == 1000
    assert card.top1 == 79.0
    assert [note.field for note in card.inferred] == ["representation_size"]
    card = zoo.get(B16_30)
    assert card.classes == 21843
    assert (card.top1, card.inferred) == (None, ())
    assert card.accuracies[0][:3] == ("imagenet21k", "validation accuracy", 49.0)
    assert card.notes == "Pre-trained for 30 epochs."


def test_the_index_is_fetched_once_and_only_when_needed(bucket, index, monkeypatch):
    zoo.list_models()
    zoo.list_models("*augreg*")
    zoo.get("vit-b16/augreg-imagenet21k")
    zoo.default_release("ViT-S_16")
    assert bucket.requests == []
    assert len(augreg.rows()) == len(made_index.FINE_TUNED)
    assert len(augreg.rows("B_16", image_size=224)) == 3
    [row] = augreg.rows("R26+S/32", finetune="kitti")
    assert (row.name, row.adapt_steps, row.adapt_final_test) == ("R26+S/32", 500, 0.79)
    augreg.best("B_16", finetune="cifar100")
    zoo.get(PETS)
    assert bucket.requests.count(INDEX) == 1
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    index_file._parse.cache_clear()
    assert augreg.best("B_16", finetune="cifar100").classes == 100
    monkeypatch.delenv("KERAS_VIT_OFFLINE")
    path = zoo.fetch(index_file.INDEX_URL)
    path.unlink()
    path.with_name(f"{path.name}.json").unlink()
    made_index.write(index, made_index.rows()[:3])
    assert len(augreg.rows()) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["H_14"], "no model 'H_14': choose Ti_16.* or R50_L_32"),
        (["L_16"], "No AugReg model has name 'L/16': choose B/16 or R26"),
        (["R26_S_32", "i1k"], "of name R26.S/32 has ds 'i1k': choose i21k\\."),
        (["B_16", "i21k", "cifar10"], "of ds i21k has adapt_ds 'cifar10': choose cif"),
        (["B_16", "i21k", "cifar100", 224], "has adapt_resolution 224: choose 384"),
        (["B_16", "i21k", None, 384], "pre-trained at 224 only, not at 384"),
    ],
)
def test_best_says_what_there_is(arguments, message):
    with pytest.raises(zoo.CatalogError, match=message):
        augreg.best(*arguments)


def test_near_misses():
    with pytest.raises(zoo.CatalogError, match=f"Did you mean.*augreg/{PETS}"):
        zoo.get(PETS.replace("0.003", "0.004"))
    with pytest.raises(zoo.CatalogError, match=f"mean augreg/{R26_OTHER}.*augreg/."):
        zoo.get(R26_OTHER.replace("0.03", "0.3"))
    with pytest.raises(zoo.CatalogError, match=r"called 'nothing'\. zoo.list_models"):
        zoo.get("augreg/nothing")
    with pytest.raises(zoo.CatalogError, match="holds a R26.ViT-S_32, not a ViT-B_16"):
        zoo.find("ViT-B_16", PETS)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b"epochs,final_val", b"", "it has no column epochs, final_val"),
        (b"0.967391", b"high", "line 2: could not convert string to float: 'high'"),
        (b",384,", b",\xff,", "not text in UTF-8"),
        (b",384,", b"\n", "line 4: list index out of range"),
    ],
)
def test_damage_is_refused(index, before, after, message):
    index.write_bytes(index.read_bytes().replace(before, after, 1))
    with pytest.raises(zoo.StoreError, match=f"should be the index.*{message}.*Delete"):
        augreg.rows()


def test_an_index_of_the_real_size_is_read(index):
    """It has 51,612 rows, in some 12 MB."""
    row = made_index.rows()[0] | {"wd": "0" * 10**5}
    made_index.write(index, 120 * [row])
    assert len(augreg.rows()) == 120


@pytest.mark.parametrize(
    ("changed", "use", "message"),
    [
        ({"final_val": "nan"}, lambda: augreg.best("B_16"), "index has no final_val"),
        ({"adapt_ds": "a"}, lambda: zoo.get(PETS), "says 'a' of R26.*known are cifar"),
    ],
)
def test_what_the_index_says_anew_is_not_guessed_at(index, changed, use, message):
    made_index.write(index, [row | changed for row in made_index.rows()])
    with pytest.raises(zoo.CatalogError, match=message):
        use()
