r"""Publishes the model of a finished run.

  keras-vit publish runs/digits --to=registry
  keras-vit publish runs/photos-ViT-Ti_16 --to=registry --name=flowers \
      --push_to=me/flowers

Writes the folder registry/NAME: the model's page (README.md, as the Hugging Face hub
reads it), model.npz under the released names, model.keras, a SavedModel that
tensorflow_hub opens, the class names and the run's report. Others load it with

  KERAS_VIT_REGISTRY=registry python -c "import keras_vit; keras_vit.load_model('NAME')"

where the registry may also be the URL of any server of the folder, for one
python -m http.server --directory=registry. keras-vit zoo list shows what is in it.
"""

from absl import app, flags

from train.common import command_line
from train.models.run_directory import RunDirectory
from zoo.store import hub

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("tensorflow", "PIL", "jinja2", "yaml")
flags.DEFINE_string("to", None, "The registry: a folder of models.", required=True)
flags.DEFINE_string(
    "name", None, "The model's name there; that of the run's directory if not given."
)
flags.DEFINE_string("license", "apache-2.0", "As the Hugging Face hub writes it.")
flags.DEFINE_bool("replace", False, "Replace a model of the same name.")
flags.DEFINE_string(
    "push_to",
    None,
    "ORG/NAME on the Hugging Face hub, to put it there too. Log in before: hf auth "
    "login, or HF_TOKEN.",
)
flags.DEFINE_bool("private", False, "Make a new repository on the hub a private one.")


def main(argv: list[str]) -> None:
    """Reads the flags, publishes, and says where the model is."""
    if len(argv) != 2:
        typed = command_line.typed("publish")
        raise app.UsageError(f"Give one run directory: {typed} RUN_DIR --to=DIR")
    command_line.need_packages("publish", PACKAGES)
    command_line.need_tensorflow("A SavedModel")
    values, run = flags.FLAGS.flag_values_dict(), RunDirectory(argv[1])
    with command_line.exit_on_errors("what is in the registry is whole"):
        run.require(run.results, run.model)
        from train.publish import publishing

        if values["push_to"]:
            hub.check_push(values["push_to"])
        folder = publishing.publish(
            argv[1],
            values["to"],
            name=values["name"],
            licence=values["license"],
            replace=values["replace"],
        )
        print(f"model    {folder}\npage     {folder / 'README.md'}")
        if values["push_to"]:
            url = publishing.push(folder, values["push_to"], private=values["private"])
            print(f"pushed   {url}")
    command_line.say_next(("predict", folder, "photo.jpg"), ("evaluate", folder))


if __name__ == "__main__":
    command_line.run(main)
