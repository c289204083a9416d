"""Pages from Jinja templates that are one HTML file and need no network."""

import base64
import hashlib
import io
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.common.safe_text import class_text, printable

if TYPE_CHECKING:
    from PIL import Image

_SHARED_STYLE = "page.css"
# The most pixels of a side of a picture.
_LONGEST_SIDE = 1600
# Pixels of screens are smaller than those of a page.
_DENSITY = 1.25


def render(package: str, name: str, parts: Sequence[str] = (), **values: Any) -> str:
    """Renders `name`.html of a package, with its `name`.css, and `name`.js if any.

    All are in the folder templates of the package, and extend the page and the style
    that all share, with those of `parts`, such as "corrections". Control characters of
    values are spelled out.
    """
    import jinja2

    shared = jinja2.PackageLoader("train.reports")
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), shared]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_spelled,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def source(name: str) -> str:
        return environment.loader.get_source(environment, name)[0]

    known = environment.list_templates()
    scripts = [f"{one}.js" for one in (name, *parts)]
    script = "".join(source(one) for one in scripts if one in known)
    styles = [_SHARED_STYLE, *(f"{one}.css" for one in (name, *parts))]
    return environment.get_template(f"{name}.html").render(
        policy=_policy(script),
        style="".join(map(source, styles)),
        script=script,
        uri=uri,
        embedded=embedded,
        class_text=class_text,
        **values,
    )


def _spelled(value):
    # A str subclass is markup, which has been escaped.
    if type(value) is not str:
        return value
    # A character may become ten; nothing is shortened.
    return printable(value, most=10 * len(value) + 100, lines=True)


def _policy(script):
    """Lets the browser load nothing, and run nothing but the script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def uri(picture: "Image.Image") -> str:
    """Returns a `PIL.Image.Image` as the data URI of a WebP picture."""
    buffer = io.BytesIO()
    # At this quality text stays sharp.
    picture.convert("RGB").save(buffer, "webp", quality=88)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def embedded(path: pathlib.Path) -> dict[str, str | int]:
    """Returns the picture in a file, with its size on the page, or why it is not shown.

    It is titled as the file is named.
    """
    import PIL.Image

    title = path.stem.replace("_", " ").capitalize()
    try:
        with PIL.Image.open(path) as picture:
            picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
            width, height = (round(side / _DENSITY) for side in picture.size)
            size = {"width": width, "height": height}
            return {"title": title, "uri": uri(picture), **size}
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError):
        return {"title": title, "why_not": f"{path.name} cannot be decoded."}
