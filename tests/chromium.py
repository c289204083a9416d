"""A page in a browser."""

import html
import json
import re
import shutil
import subprocess

import pytest


def opened(page, folder, *flags):
    """Opens a page in Chromium with a profile in a folder.

    Returns the DOM in the end and what the browser printed.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(names)} is installed")
    always = "headless no-sandbox disable-gpu hide-scrollbars enable-logging=stderr "
    always += f"user-data-dir={folder / 'profile'} dump-dom"
    command = [browser, *(f"--{flag}" for flag in (*always.split(), *flags))]
    try:
        done = subprocess.run(
            [*command, page.as_uri()], capture_output=True, timeout=200
        )
    except subprocess.TimeoutExpired as late:
        # Some browsers never exit, once in hundreds of times, having printed it all.
        if b"</html>" not in (late.stdout or b""):
            raise
        return late.stdout.decode(), (late.stderr or b"").decode()
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


# A page in a frame as wide as a phone. What is outside of it is cut off, unless it
# scrolls in a box of its own that is whole: only tables and code may.
_PHONE = """
<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>onload = () => {{
  const d = document.querySelector("iframe").contentDocument, cut = [];
  const scrolls = (one) =>
    {may} && one.closest("table, pre")?.closest(".scroll, pre");
  for (const one of d.body.querySelectorAll("*")) {{
    const {{ left, right, width }} = one.getBoundingClientRect();
    if (width && (left < 0 || right > {width} + 0.5) && !scrolls(one)) {{
      cut.push(one.outerHTML.slice(0, 120));
    }}
  }}
  if (d.documentElement.scrollWidth > {width}) cut.push("the page itself");
  document.title = JSON.stringify(cut);
}};</script>
"""


def cut_off(page, folder, width=400, tables_scroll=True):
    """Returns what of a page is cut off on a screen so wide, the tags of elements."""
    outer = folder / f"{page.stem}-{width}.html"
    may = str(tables_scroll).lower()
    text = html.escape(page.read_text("utf-8"))
    outer.write_text(_PHONE.format(page=text, width=width, may=may), "utf-8")
    dom, _ = opened(outer, folder, "window-size=1400,1000")
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", dom)[1]))
