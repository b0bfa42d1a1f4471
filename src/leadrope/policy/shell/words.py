"""What is known about one word of a command line once the shell has expanded it.

The grammar is looser than bash in places, so only forms that both read alike are accepted; the rest is opaque.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from leadrope.regex import regex

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN_PATH = "?"

_NAME = regex(r"[A-Za-z_]\w*\Z", re.ASCII)
_PLAIN = regex(r"[\w./:@%+,\-][\w./:@%+,\-=]*\Z")
# Braces that are a plain choice, so that each resulting word is known.
_PLAIN_BRACES = regex(r"(?:[\w./:@%+=*?~-]*\{[\w./:@%+=*?~-]*(?:,[\w./:@%+=*?~-]*)+\})+[\w./:@%+=*?~-]*\Z", re.ASCII)
_MAX_CHOICES = 64
_NUMBER = regex(r"-?\d+\Z", re.ASCII)
# A `$` or backtick that starts an expansion; where the grammar shows it as plain text, the grammar and bash disagree.
_LIVE = regex(r"(?<!\\)(?:\\\\)*(?:`|\$[\w({?!@*#$\[\-])", re.ASCII)
_LIVE_UNQUOTED = regex(r"(?<!\\)(?:\\\\)*[`$]")
_IDENTIFIER = regex(r"(?P<live>\$?)(?<!\w)(?P<name>[A-Za-z_]\w*)(?P<given>\s*=(?!=))?", re.ASCII)
# The shell's own variables that are always a number; setting one of them is opaque.
_ALWAYS_NUMBERS = frozenset(
    ("RANDOM", "SRANDOM", "SECONDS", "LINENO", "BASHPID", "PPID", "UID", "EUID", "EPOCHSECONDS")
)
_RANGE = regex(r"\{\d{1,9}\.\.\d{1,9}\}\Z", re.ASCII)
# What follows the `:` of `${x:1:2}`; `${x:-y}` and the like are not slices.
_SLICE = regex(r"\$\{(?:[A-Za-z_]\w*(?:\[[^\]]*\])?|\d+|[@*#?$!-]):(?![-=?+])(?P<slice>.*)\}\Z", re.ASCII | re.DOTALL)
# Letters after a digit (`0x1f`, `10#z`) never name a variable with text; strings, indices and braces are left out.
_ARITHMETIC = regex(r"(?:[\s\d+\-*/%<>=!&|^~?:(),]|\$?[A-Za-z_]\w*|\$[#?])*\Z", re.ASCII)
_COUNTED_ONLY = regex(r"(?:\$[#?$!]|\$\{#[A-Za-z_]\w*(?:\[[@*]\])?\})\Z", re.ASCII)
_SIMPLE_BRACED = regex(r"\$\{#?(?:[A-Za-z_]\w*(?:\[[@*]\])?|\d+|[@*#?$!-])\}\Z", re.ASCII)
_EDITS = frozenset(
    (":-", "-", ":=", "=", ":?", "?", ":+", "+", "#", "##", "%", "%%", "/", "//", "/#", "/%", "^", "^^", ",", ",,")
)
# `@P` would expand the value as a prompt, which runs the substitutions in it.
_TRANSFORMS = frozenset("QUuL")
_SIMPLE_ESCAPES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_ANSI_C = regex(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|(.))", re.DOTALL)


class Word(msgspec.Struct, frozen=True):
    """A word: its text if known, otherwise its known beginning and end."""

    text: str | None
    lead: str = ""
    tail: str = ""
    splits: bool = False
    """It may expand to no word at all, or to several."""
    glob: bool = False
    bare: bool = False
    """Nothing in it was quoted or escaped, which reserved words and assignments require."""
    counted: bool = False
    """Unknown, but certainly a number."""
    choices: tuple[str, ...] = ()
    """It expands to each of these (`{a,b}.py`)."""

    @property
    def could_be_option(self) -> bool:
        return not self.counted and (not self.lead or self.lead[0] in "-*?[")


UNKNOWN = Word(None, splits=True)


def names(text: str) -> frozenset[str]:
    """Returns a set of names that is written as a readable text."""
    return frozenset(text.split())


def known(text: str) -> Word:
    return Word(text, text, text)


def is_name(text: str | None) -> bool:
    return text is not None and _NAME.match(text) is not None


def is_number(word: Word) -> bool:
    return word.counted or (word.text is not None and _NUMBER.match(word.text) is not None)


class Variables:
    """The variables of all scripts of one command line, as far as their values could be run."""

    def __init__(self) -> None:
        self.counted: set[str] = set()
        """Evaluated as arithmetic: bash runs a `$(...)` in the index of such a value."""
        self.texts: set[str] = set()
        """Assigned something other than a number."""
        self.numbers: set[str] = set()
        """Assigned a number by this line, before the position being read."""
        self.computed: set[str] = set()
        """Assigned a number by arithmetic."""
        self.assigned: set[str] = set()

    def assign(self, name: str, value: Word, *, appends: bool = False) -> None:
        self.assigned.add(name)
        if is_number(value) and (not appends or name in self.numbers):
            self.numbers.add(name)
        else:
            self.texts.add(name)


class WordReader:
    """Reads the words of one script. Substitutions are passed to `inside`, unclear forms are reported to `tell`."""

    def __init__(
        self, source: bytes, variables: Variables, *, tell: Callable[[str], None], inside: Callable[[Node], None]
    ) -> None:
        self._source = source
        self._variables = variables
        self._tell = tell
        self._inside = inside

    def text_of(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def word(self, node: Node) -> Word:
        kind = node.type
        if kind in ("word", "number", "variable_name", "test_operator", "extglob_pattern", "regex"):
            if node.child_count:
                return self._unclear("a word of a form that is not known here")
            return self._unquoted(self.text_of(node))
        if kind == "raw_string":
            text = self.text_of(node)[1:-1]
            return Word(text, text, text)
        if kind == "string":
            return self._string(node)
        if kind == "concatenation":
            return self._joined(node)
        if kind in ("simple_expansion", "expansion", "arithmetic_expansion"):
            return self._expansion(node, quoted=False)
        if kind == "ansi_c_string":
            decoded = _decode_ansi_c(self.text_of(node)[2:-1])
            if decoded is None:
                return self._unclear("a $'...' string with an escape that is not known here")
            return Word(decoded, decoded, decoded)
        if kind == "brace_expression" and _RANGE.match(self.text_of(node)):
            return Word(None, splits=True, counted=True)
        if kind == "command_substitution":
            self._substituted(node)
            return UNKNOWN
        if kind == "process_substitution":
            self._inside(node)
            return Word(None, "/dev/fd/")
        return self._unclear(f"a word that is a {kind.replace('_', ' ')}")

    def literal(self, node: Node, *, start: int, end: int) -> list[str | Word]:
        """Reads text in which only `$` and backticks are special (a string, a here-document), in pieces."""
        pieces: list[str | Word] = []
        at = start
        for child in node.named_children:
            if child.type in ("string_content", "heredoc_content"):
                continue
            begin = child.start_byte
            while self._source[begin : begin + 1] in (b" ", b"\t", b"\n"):
                begin += 1  # the backtick of a substitution includes the blanks before it
            pieces.append(self._dead(self._source[at:begin].decode()))
            if child.type in ("simple_expansion", "expansion", "arithmetic_expansion"):
                pieces.append(self._expansion(child, quoted=True))
            elif child.type == "command_substitution":
                self._substituted(child)
                pieces.append(Word(None))
            else:
                pieces.append(self._unclear(f"a {child.type.replace('_', ' ')} inside a string"))
            at = child.end_byte
        pieces.append(self._dead(self._source[at:end].decode()))
        return pieces

    def _substituted(self, node: Node) -> None:
        """Reads a command substitution; in a here-document the grammar also takes arithmetic for one."""
        text = self.text_of(node).strip()
        if text.startswith("$((") and text.endswith("))"):
            self.arithmetic(text[3:-2])
            if _ARITHMETIC.match(text[3:-2]) and _balanced(text[3:-2]):
                return
        self._inside(node)

    def arithmetic(self, text: str) -> None:
        """Checks `text` that is evaluated as arithmetic; anything but numbers, names and operators is unclear."""
        if not _ARITHMETIC.match(text) or not _balanced(text):
            self._tell("arithmetic that may run what its values say")
            return
        for found in _IDENTIFIER.finditer(text):
            name = found["name"]
            if found["given"] and not found["live"]:
                self._variables.numbers.add(name)
                self._variables.computed.add(name)
                continue
            self._variables.counted.add(name)
            if name not in self._variables.numbers and name not in _ALWAYS_NUMBERS:
                # It may come from the environment, or from the shell itself (REPLY, MAPFILE, BASH_REMATCH).
                self._tell(f"arithmetic with {name}, which this line gives no number")

    def _unclear(self, reason: str) -> Word:
        self._tell(reason)
        return UNKNOWN

    def _dead(self, text: str) -> str:
        if ("$" in text or "`" in text) and _LIVE.search(text):
            self._tell("a string that this reader and bash may read differently")
        return text

    def _unquoted(self, text: str) -> Word:
        if _PLAIN.match(text):
            return Word(text, text, text, bare=True)
        if "{" in text and ("," in text or ".." in text):
            return Word(None, splits=True, counted=True) if _RANGE.match(text) else _braces(text)
        out: list[str] = []
        glob, bare, escaped = False, True, False
        for char in text:
            if escaped:
                if char == "\n":
                    return self._unclear("a line that continues inside a word")
                out.append(char)
                escaped = False
            elif char == "\\":
                escaped, bare = True, False
            elif char in "\"'`$();&|<> \t\n":
                return self._unclear("a word that this reader and bash may read differently")
            else:
                glob = glob or char in "*?["
                out.append(char)
        read = "".join(out)
        if escaped or read[:1] == "=" or (text[:1] == "#"):
            return self._unclear("a word that this reader and the shell may read differently")
        return Word(read, read, read, glob=glob, bare=bare)

    def _string(self, node: Node) -> Word:
        pieces = self.literal(node, start=node.start_byte + 1, end=node.end_byte - 1)
        return _assemble([_unescape_string(piece) if isinstance(piece, str) else piece for piece in pieces])

    def _joined(self, node: Node) -> Word:
        raw = self.text_of(node)
        parts = node.children
        at = node.start_byte
        for part in parts:
            if part.start_byte != at:
                return self._unclear("a word with a gap in it")
            at = part.end_byte
        words = [self.word(part) for part in parts]
        unquoted = "".join(self.text_of(part) for part in parts if part.type == "word")
        if "{" in unquoted and ("," in raw or ".." in raw):
            return _braces(raw)
        joined = _assemble(words)
        return msgspec.structs.replace(joined, glob=any(w.glob for w in words), bare=all(w.bare for w in words))

    def _expansion(self, node: Node, *, quoted: bool) -> Word:
        text = self.text_of(node).strip()
        if node.type == "arithmetic_expansion":
            if text.startswith("$((") and text.endswith("))"):
                self.arithmetic(text[3:-2])
            else:
                self._tell("arithmetic in a form that is not known here")
            return Word(None, counted=True)
        if text in ("$HOME", "${HOME}") and "HOME" not in self._variables.assigned:
            return Word("~", "~", "~")
        if _COUNTED_ONLY.match(text):
            return Word(None, counted=True)
        if node.type == "expansion" and not _SIMPLE_BRACED.match(text):
            self._braced(node)
        many = not quoted or text in ("$@", "${@}") or "[@]" in text or "@:" in text
        return Word(None, splits=many)

    def _braced(self, node: Node) -> None:
        operator = ""
        if slice_ := _SLICE.match(self.text_of(node).strip()):
            self.arithmetic(slice_["slice"])
        for child in node.children[1:-1]:
            kind = child.type
            if operator == ":":
                if slice_ is None:
                    self._tell("an expansion with arithmetic in it")
                break
            if kind in ("variable_name", "special_variable_name"):
                continue
            if kind == "subscript":
                self.subscript(child)
            elif not child.is_named:
                if operator == "@" and kind in _TRANSFORMS:
                    operator = "@x"
                elif kind in _EDITS or (kind in ("@", ":") and not operator):
                    operator = kind
                else:
                    self._tell("an expansion that may run what its value says")
            elif kind in ("raw_string", "ansi_c_string"):
                # Inside double quotes these quotes are plain text, so what they seem to quote is expanded.
                if "$" in self.text_of(child) or "`" in self.text_of(child):
                    self._tell("quotes inside an expansion")
            elif kind in ("regex", "word", "number", "extglob_pattern"):
                if _LIVE_UNQUOTED.search(self.text_of(child)) or child.child_count:
                    self._tell("an expansion that this reader and bash may read differently")
            else:
                self.word(child)
        if operator in (":=", "="):
            self._variables.texts.update(self.text_of(c) for c in node.children if c.type == "variable_name")
        if operator == "@":
            self._tell("an expansion that may run what its value says")

    def subscript(self, node: Node) -> None:
        """Checks an index, which is arithmetic unless it is `@`, `*` or a number."""
        text = self.text_of(node)
        index = text[text.find("[") + 1 : -1]
        if index not in ("@", "*") and not _NUMBER.match(index):
            self._tell("an index that may run what its value says")


def _assemble(pieces: Iterable[str | Word]) -> Word:
    """Joins pieces into one word; an unknown piece ends the known beginning and restarts the known end."""
    lead, tail, whole, splits = "", "", True, False
    for piece in pieces:
        if isinstance(piece, str):
            text: str | None = piece
            first = last = piece
        else:
            text, first, last = piece.text, piece.lead, piece.tail
            splits = splits or piece.splits
        if whole:
            lead += first
        if text is None:
            whole, tail = False, last
        else:
            tail += text
    return Word(lead if whole else None, lead, tail, splits=splits)


def _braces(text: str) -> Word:
    if not _PLAIN_BRACES.match(text):
        return UNKNOWN
    return Word(None, text.partition("{")[0], splits=True, choices=_choices(text))


def _choices(text: str) -> tuple[str, ...]:
    """Returns the words that plain braces expand to: no quotes, no ranges, no nesting."""
    found = [""]
    for fixed, inner in re.findall(r"([^{}]*)(?:\{([^{}]*)\})?", text):
        options = inner.split(",") if inner else [""]
        if len(found) * len(options) > _MAX_CHOICES:
            return ()
        found = [f"{before}{fixed}{option}" for before in found for option in options]
    return tuple(dict.fromkeys(found))


def _unescape_string(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], text)


def _decode_ansi_c(text: str) -> str | None:
    def one(found: re.Match[str]) -> str:
        for group, base in ((1, 16), (2, 8), (3, 16), (4, 16)):
            if digits := found[group]:
                return chr(int(digits, base) & (0xFF if base == 8 else 0x1FFFFF))
        return _SIMPLE_ESCAPES.get(found[5], "\0")

    try:
        decoded = _ANSI_C.sub(one, text)
    except ValueError:
        return None
    # NUL ends the string in bash, and bytes over 127 are parts of a character there.
    if "\0" in decoded or any("\x7f" < char < "\u0100" for char in decoded):
        return None
    return decoded


def _balanced(text: str) -> bool:
    """Whether parentheses are balanced: bash reads `$((a) | (b))` as commands, not as arithmetic."""
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0
