"""A page as a browser reads it."""

import html.parser
import re


class Page(html.parser.HTMLParser):
    """The tags of a page with their attributes, the data between, and all as a line."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.data = [], []
        self.feed(path.read_text("utf-8"))
        self.text = re.sub(r"\s+", " ", " ".join(self.data))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] not in ("style", "script"):
            self.data.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)

    def values(self, *names):
        """The values of some attributes of all tags."""
        return [at[name] for _, at in self.tags for name in names if name in at]
