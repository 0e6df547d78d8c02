"""Formulas as MathML, made when the site is built: browsers show them without a script or a font of ours.

`pymdownx.arithmatex` finds ``$...$`` and ``$$...$$`` and keeps Markdown off them; here they are converted.
"""

from __future__ import annotations

import html
import logging
import re
from typing import Any

from latex2mathml.converter import convert

LOG = logging.getLogger("mkdocs.plugins.formulas")
FOUND = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>',
    re.DOTALL,
)


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Replace the formulas of a page; one that cannot be converted is a warning (strict: an error)."""

    def as_mathml(match: re.Match[str]) -> str:
        tex = html.unescape(match["tex"]).strip()
        display = "block" if match["open"] == "[" else "inline"
        try:
            made = convert(tex, display=display)
        except Exception as error:  # the library has no class of errors of its own
            LOG.warning("%s: %s in the formula %s", page.file.src_uri, error or type(error), tex)
            return match[0]
        return f'<div class="formula">{made}</div>' if display == "block" else made

    return FOUND.sub(as_mathml, text)
