"""What the reference says of variants, recipes and commands, read from the package."""

import dataclasses
import importlib
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import sys

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from pygments.lexers.special import TextLexer
from sphinx.util.nodes import make_refnode

from keras_vit_start import COMMANDS

ROOT = pathlib.Path(__file__).parents[2]
_SECTIONS = "<!-- a section for each command of train -->"
# A command, or a flag alone, in the docstring of a recipe.
_COMMAND = re.compile(r"(keras-vit \w+(?: --\w+=[\w/]+)*|--\w+=[\w.]+)")


class _Written(Directive):
    """A directive that writes reStructuredText and has it read."""

    def run(self):
        lines = StringList(self.text().splitlines(), source=self.name)
        node = nodes.container()
        self.state.nested_parse(lines, self.content_offset, node)
        return node.children


class Variants(_Written):
    """The functions of the released variants, side by side."""

    def text(self):
        import keras_vit
        import zoo

        columns = ("Function", "Layers", "Hidden size", "MLP", "Heads", "Parameters")
        rows, signatures = [], []
        for variant, sizes in zoo.VARIANTS.items():
            function = _function_of(keras_vit, variant)
            rows.append(
                (
                    f"`{function.__name__}`",
                    sizes.num_layers,
                    f"{sizes.hidden_size:,}",
                    f"{sizes.mlp_dim:,}",
                    sizes.num_heads,
                    f"{sizes.count_parameters(image_size=224, classes=1000):,}",
                )
            )
            default = inspect.signature(function).parameters["weights"].default
            signatures.append(f"{function.__name__}(weights={default!r}, **options)")
        return "\n\n".join(
            [
                _table(columns, rows),
                ".. py:currentmodule:: keras_vit",
                ".. py:function:: " + f"\n{' ' * 17}".join(signatures),
                "   Returns `VisionTransformer(config, weights, **options)` with the "
                "config of the name: the options, with their defaults, and the errors "
                "raised are those of `VisionTransformer`. `weights` also takes the "
                "path or URL of a file, a `zoo.Checkpoint`, or None for random ones.",
                "   >>> model = ViT_B16(weights=None, classes=10)\n"
                "   >>> model.output_shape\n"
                "   (None, 10)",
            ]
        )


class Recipes(_Written):
    """The recipes of a package: the docstrings of their files, and their values."""

    required_arguments = 1

    def text(self):
        package = importlib.import_module(self.arguments[0])
        parts = []
        for module in pkgutil.iter_modules(package.__path__):
            loaded = importlib.import_module(f"{package.__name__}.{module.name}")
            own = getattr(loaded, "RECIPE", None)
            recipes = getattr(loaded, "RECIPES", None) or own and {module.name: own}
            if not recipes:
                continue
            names = ", ".join(f"``{name}``" for name in recipes)
            words = _COMMAND.sub(r"``\1``", inspect.getdoc(loaded))
            parts += [f".. rubric:: {names}", words]
        return "\n\n".join(parts)


class Help(Directive):
    """What a command prints with --help."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self):
        words = " ".join(self.arguments).split()
        environment = os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT)}
        process = subprocess.run(
            [sys.executable, "-m", "keras_vit_start", *words, "--help"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        if process.returncode or not process.stdout:
            raise self.error(f"keras-vit {self.arguments[0]} --help: {process.stderr}")
        command = f"$ keras-vit {' '.join(words)} --help\n\n"
        text = command + process.stdout.strip("\n")
        return [nodes.literal_block("", text, language="text")]


def _write_sections(app, docname, source):
    """Writes a section for each command of `train` into the page of the commands."""
    if docname == "reference/commands":
        sections = "\n".join(
            f"## {name}\n\n```{{eval-rst}}\n.. help:: {name}\n```\n"
            for name in COMMANDS
            if name != "zoo"
        )
        source[0] = source[0].replace(_SECTIONS, sections)


def _function_of(package, variant):
    return next(
        function
        for name in package.__all__
        if inspect.isfunction(function := getattr(package, name))
        and function.__doc__.startswith(f"Returns {variant}, ")
    )


def _table(columns, rows):
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (columns, *rows):
        marks = ["   * - ", *["     - "] * (len(row) - 1)]
        lines += [f"{mark}{cell}" for mark, cell in zip(marks, row, strict=True)]
    return "\n".join(lines)


def _head_examples(app, what, name, thing, options, lines):
    """Makes a heading of `Example:` where what follows is not indented."""
    lines[:] = [".. rubric:: Example" if x == "Example:" else x for x in lines]


def _describe_settings(app, what, name, thing, options, lines):
    """Adds the help of each field to a class whose fields are settings."""
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    for field in fields if what == "class" else ():
        if usage := field.metadata.get("usage"):
            lines.append(f":param {field.name}: {usage}")


def _by_last_part(app, env, node, contnode):
    """Finds the `RunError` of a docstring, which its module imports from another."""
    if node["refdomain"] != "py":
        return None
    domain = env.get_domain("py")
    name = node["reftarget"]
    found = {
        entry for entry in domain.objects if entry == name or entry.endswith(f".{name}")
    }
    if len(found) > 1:
        # `zoo.ViTConfig` is the same class.
        found = {entry for entry in found if entry.startswith("keras_vit.")}
    if len(found) != 1 or not name[:1].isupper():
        return None
    entry = domain.objects[found.pop()]
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, name
    )


def setup(app):
    """Adds the directives, and the language of CSV files, which has no colours."""
    app.add_lexer("csv", TextLexer)
    app.add_directive("variants", Variants)
    app.add_directive("recipes", Recipes)
    app.add_directive("help", Help)
    app.connect("autodoc-process-docstring", _head_examples)
    app.connect("autodoc-process-docstring", _describe_settings)
    app.connect("missing-reference", _by_last_part)
    app.connect("source-read", _write_sections)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
