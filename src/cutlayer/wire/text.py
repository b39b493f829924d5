"""Text that another party sent, made safe to print and to log.

Escape sequences would let a peer move the cursor, recolour or overwrite what an operator reads; line breaks
would let it write lines of its own. So a peer's strings pass through here where they enter: the strings of
messages in `messages/envelope.py`, the details of a gRPC status and the names in a certificate where they are
read.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: A reason is a sentence or two. A peer that sends more is cut short.
LONGEST = 2000
_LONGEST_JSON = 1 << 20
#: An escape in JSON; two surrogates make one letter.
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.", re.DOTALL)


def plain_text(text: str, longest: int = LONGEST) -> str:
    r"""The text on one line, with all that is not printable written out as `\x1b`, and cut to `longest`.

    >>> plain_text("done\x1b[2J\nroot#")
    'done\\x1b[2J\\nroot#'
    """
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def plain_json(text: str) -> str:
    r"""JSON whose strings are plain once they are parsed: an escaped `\u001b` stays written out."""

    def plain(found: re.Match[str]) -> str:
        try:
            letter = json.loads(f'"{found[0]}"')
        except ValueError:  # the parser refuses it, too
            return found[0]
        return found[0] if letter.isprintable() else found[0].replace("\\", "\\\\")

    return plain_text(_ESCAPE.sub(plain, text), _LONGEST_JSON)


def with_plain_strings(message: Any, in_json: frozenset[str] = frozenset()) -> Any:
    """A protobuf message whose strings are plain, at whatever depth; fields named in `in_json` hold JSON."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                with_plain_strings(inner, in_json)
        elif field.type == field.TYPE_STRING:
            if isinstance(value, str):
                setattr(message, field.name, (plain_json if field.name in in_json else plain_text)(value))
            else:
                value[:] = [plain_text(one) for one in value]
    return message
