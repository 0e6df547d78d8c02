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
ELSE_KNOWN_AS = {r"\arg\min": r"\argmin", r"\arg\max": r"\argmax", "{aligned}": "{split}"}
LETTERS = re.compile(r'(?:<mi mathvariant="normal">\w</mi>){2,}')
LEFT_OVER = re.compile(r"\\[a-zA-Z]+|<mi>&(?:amp;)?</mi>")


def as_mathml(tex: str, display: str) -> str:
    """Convert a formula.

    Raises
    ------
    ValueError
        Something of it was not understood.
    """
    for name, other in ELSE_KNOWN_AS.items():
        tex = tex.replace(name, other)
    made = convert(tex, display=display)
    if left := LEFT_OVER.search(made):
        raise ValueError(f"{left[0]} is not understood")
    # A word is one identifier, not as many as it has letters.
    return LETTERS.sub(lambda word: f"<mi>{re.sub('<[^>]*>', '', word[0])}</mi>", made)


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Replace the formulas of a page; one that cannot be converted is a warning (strict: an error)."""

    def converted(match: re.Match[str]) -> str:
        tex = html.unescape(match["tex"]).strip()
        display = "block" if match["open"] == "[" else "inline"
        try:
            made = as_mathml(tex, display)
        except Exception as error:  # the library has no class of errors of its own
            LOG.warning("%s: %s in the formula %s", page.file.src_uri, error or type(error), tex)
            return match[0]
        return f'<div class="formula">{made}</div>' if display == "block" else made

    return FOUND.sub(converted, text)
