"""Text from a user, such as a name of a modality, where it may stand: on one line, and in Markdown."""

from __future__ import annotations

import unicodedata


def one_line(text: object) -> str:
    r"""Text from a user on one line, without characters that would break a terminal or an XML file.

    >>> one_line("a\nb\x00c")
    'a bc'
    """
    spaced = " ".join(str(text).split())
    return "".join(letter for letter in spaced if unicodedata.category(letter) not in ("Cc", "Cs", "Cn", "Co"))


def markdown_escape(text: str) -> str:
    """Text that Markdown shows as it stands."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|~$&" else letter for letter in text)
