"""The card of a published model."""

CARD = {
    "name": "flowers",
    "architecture": {"hidden_size": 48, "patch_size": 16},
    "image_size": [32, 48],
    "channels": 3,
    "classes": 2,
    "class_names": ["daisy", "rose"],
    "parameters": 10,
    "weights": "model.npz",
    "file_size": 40,
    "sha256": 64 * "0",
    "data_set": "photos",
    "metrics": {"test_accuracy": 0.5},
    "base": None,
    "variant": None,
    "licence": "apache-2.0",
}
