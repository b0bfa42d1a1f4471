"""A conversation to complete, and its completion: values for programs that want a text. Knows no run and no agent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

import msgspec

from leadrope.regex import regex

Role = Literal["user", "assistant"]

_HEADS: dict[Role, str] = {"user": "[User]", "assistant": "[Assistant]"}
_SYSTEM = "[System]"
# Also with what a text may put before or after it: a reader as forgiving as a model takes all of these for a head.
_LOOKS_LIKE_A_HEAD = regex(r"^(?=[^\S\n]*\[(?:system|user|assistant|tool)\][^\S\n]*$)", re.IGNORECASE | re.MULTILINE)
_BACKSLASH = r"\\"
"""One, as re.sub reads it."""
_SPOKE_FIRST = "(The conversation begins with the assistant.)"


def without_heads(text: str) -> str:
    """The text with a backslash before each line that looks like the head of a block."""
    return _LOOKS_LIKE_A_HEAD.sub(_BACKSLASH, text)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said, by whom."""

    role: Role
    text: str


class ApiMessage(TypedDict):
    role: Role
    content: str


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What was said so far, and what is said now."""

    message: str
    system_prompt: str = ""
    history: tuple[Message, ...] = ()

    if TYPE_CHECKING:

        def __init__(self, *, message: str, system_prompt: str = "", history: Sequence[Message] = ()) -> None:
            """As the fields, but the history may be a list."""

    def to_prompt_string(self, *, resumed: bool = False) -> str:
        """One text for an agent that keeps no history of its own; the bare message for a session that has it already.

        A line in a text that looks like the head of a block gets a backslash, so that nobody can put words into
        another's mouth.
        """
        if resumed:
            return self.message
        blocks = [(_SYSTEM, self.system_prompt)] if self.system_prompt else []
        blocks += [(_HEADS[said.role], said.text) for said in self.history]
        blocks.append((_HEADS["user"], self.message))
        return "\n\n".join(f"{head}\n{without_heads(text)}" for head, text in blocks)

    def to_messages(self) -> tuple[str | None, list[ApiMessage]]:
        """The system prompt (None when there is none) and messages as chat APIs want them: a user first, then in turn.

        Messages of one side that follow each other become one, empty ones are left out.
        """
        out: list[ApiMessage] = []
        for said in (*self.history, Message(role="user", text=self.message)):
            if not said.text.strip():
                continue
            if not out and said.role == "assistant":
                out.append({"role": "user", "content": _SPOKE_FIRST})
            if out and out[-1]["role"] == said.role:
                out[-1]["content"] += f"\n\n{said.text}"
            else:
                out.append({"role": said.role, "content": said.text})
        return self.system_prompt or None, out


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer to a context, and what it took."""

    text: str
    provider: str
    tokens: int | None = None
    """In and out together; None when the agent did not say."""
    processing_time_ms: int = 0
    model: str | None = None
    reply_target: str | None = None
    """Where the answer goes: for the program that passes it on, which alone knows."""
    session_id: str | None = None
    warnings: tuple[str, ...] = ()
