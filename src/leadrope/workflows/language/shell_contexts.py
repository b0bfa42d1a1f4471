"""Finds where templates are in a bash script, and how their values must be quoted there.

The script is read as bash reads it, in one pass and only as far as quoting is concerned. After something ambiguous
every template is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from leadrope.regex import regex

How = Literal["word", "double", "single", "ansi", "comment", "here", "here-raw", "arithmetic", "number", "refused"]
_SUBSCRIPT = regex(r"[A-Za-z_][A-Za-z0-9_]*\[[^\]]*")
_COMPARES = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"})
_RUNS_WORDS = frozenset({"eval", "let", "trap", "unset", "read", "alias"})
"""Builtins that evaluate their words again, as code or as a variable's subscript, which may contain code."""
_NAMES_VARIABLE = {"test": "-v", "[": "-v", "printf": "-v", "wait": "-p"}
_IN_PARAMETER = "it is inside the shell's own ${...}; set a variable first"
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})
_DEEPEST = 40


class ShellContext(NamedTuple):
    how: How
    at: int
    reason: str = ""


class Here(NamedTuple):
    """A here-document: the position of its body in the script, and the line that ends it."""

    start: int
    end: int
    delimiter: str
    strips_tabs: bool


class ScriptReader:
    """Reads a script once and determines the quoting for each mark; after something ambiguous all are refused."""

    def __init__(self, text: str, mark: str) -> None:
        self.text = text
        self.mark = mark
        self.at = 0
        self.places: list[ShellContext] = []
        self.heres: list[Here] = []
        self._pending: list[tuple[str, bool, bool]] = []
        self._unsure = ""
        self._inner_arrays = 0

    def _place(self, how: How, reason: str = "") -> None:
        if self._unsure:
            how, reason = "refused", self._unsure
        if self._inner_arrays:
            # Bash 5.2 reads them twice, and the second time a value with a newline is no longer quoted.
            how, reason = "refused", "it is in an array inside of parentheses; set a variable first"
        if how in ("word", "double", "ansi", "number", "arithmetic") and self._is_escaped():
            how, reason = "refused", "it follows a backslash"
        self.places.append(ShellContext(how, self.at, reason))
        self.at += 1

    def _is_escaped(self) -> bool:
        return self._backslashes(0) % 2 == 1

    def _backslashes(self, start: int) -> int:
        """Returns the number of backslashes directly before this position."""
        at = self.at
        while at > start and self.text[at - 1] == "\\":
            at -= 1
        return self.at - at

    def _doubt(self, why: str) -> None:
        self._unsure = self._unsure or why

    def _follows(self, what: str) -> bool:
        return self.text.startswith(what, self.at)

    # -- commands ------------------------------------------------------------------------------------------------------

    def code(self, *, closer: str, depth: int) -> None:
        """Reads commands up to the closing `)`, or to the end."""
        if depth > _DEEPEST:
            self._doubt(f"substitutions are nested more than {_DEEPEST} deep")
            self.at = len(self.text)
            return
        parens = 0
        array = 0  # the parenthesis depth at which an array's values are
        line = _Line()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == self.mark:
                self._place(*line.how())
                line.inside()
            elif self._follows("\\\n"):
                self._continued_line()
            elif char == "\\":
                self.at += 1 if self._follows("\\" + self.mark) else 2
                line.inside()
            elif char in "'\"`$":
                self._quote_or_dollar(char, line, depth)
            elif char == "#" and not line.in_word:
                self._comment()
            elif char == "<" and self._follows("<<") and not self._follows("<<<"):
                line.end_word(self.places)
                self._here_operator()
            elif char == "(" and self._follows("(("):
                line.end_command(self.places)
                self.at += 2
                self._arithmetic("))", depth + 1)
            elif char == "(":
                if line.word.endswith("=") and not array and (depth or parens):
                    array = parens + 1
                    self._inner_arrays += 1
                line.end_command(self.places)
                parens += 1
                self.at += 1
            elif char == ")":
                line.end_command(self.places)
                self.at += 1
                if parens:
                    if parens == array:
                        array = 0
                        self._inner_arrays -= 1
                    parens -= 1
                elif closer:
                    if self._pending:
                        self._doubt("a here-document before it does not end inside its $(...)")
                    return
            elif char == "\n":
                line.end_command(self.places)
                self.at += 1
                self._here_bodies(depth)
            elif char in " \t;&|<>":
                is_redirection = char == "&" and (self.text[self.at - 1 : self.at] in ("<", ">") or self._follows("&>"))
                if char in ";&|" and not is_redirection:
                    line.end_command(self.places)
                else:
                    line.end_word(self.places)
                line.is_target = line.is_target or char in "<>"
                self.at += 3 if self._follows("<<<") else 1
            else:
                line.add(char)
                self.at += 1
                if closer and line.word == "case" and self._ends_word():
                    self._doubt("a `case` inside $(...) before it cannot be read without doubt")
        line.end_command(self.places)

    def _continued_line(self) -> None:
        """Handles a line continuation: bash removes both characters first, which may join what is around them."""
        if self.text[self.at - 1 : self.at] in ("$", "<", "("):
            self._doubt("a line before it is continued in the middle of a sign")
        self.at += 2

    def _ends_word(self) -> bool:
        return self.at >= len(self.text) or self.text[self.at] in " \t\n;&|()<>"

    def _quote_or_dollar(self, char: str, line: _Line, depth: int) -> None:
        if char == "'":
            self.at += 1
            self._single(line)
        elif char == '"':
            self.at += 1
            self._double(depth + 1, line)
        elif char == "`":
            self._backticks()
        elif self._follows("$'"):
            self.at += 2
            self._ansi(line)
        elif self._follows('$"'):
            self.at += 2
            self._double(depth + 1, line)
        else:
            self._dollar(depth, in_quotes=False)
        line.inside()

    def _dollar(self, depth: int, *, in_quotes: bool) -> None:
        """Handles a `$` that does not begin quotes."""
        if self._follows("$(("):
            self.at += 3
            self._arithmetic("))", depth + 1)
        elif self._follows("$("):
            self.at += 2
            outer, self._pending = self._pending, []
            self.code(closer=")", depth=depth + 1)
            self._pending = outer
        elif self._follows("${"):
            self.at += 2
            self._parameter(depth + 1, in_quotes=in_quotes)
        elif self._follows("$["):
            self.at += 2
            self._arithmetic("]", depth + 1)
        elif self._follows("$" + self.mark):
            self.at += 1
            self._doubt("it follows a `$`")
        else:
            is_special = self.text[self.at + 1 : self.at + 2] in tuple("#$?!@*-0123456789")
            self.at += 2 if is_special else 1

    # -- quotes --------------------------------------------------------------------------------------------------------

    def _place_quoted(self, how: How, line: _Line) -> None:
        """Records a quoted template; refused where an unquoted one would be, since quotes do not prevent `eval`."""
        found, reason = line.how()
        self._place(how if found == "word" else found, reason)

    def _single(self, line: _Line) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == self.mark:
                self._place_quoted("single", line)
                continue
            self.at += 1
            if char == "'":
                return

    def _ansi(self, line: _Line) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == self.mark:
                self._place_quoted("ansi", line)
                continue
            self.at += 1 if char != "\\" or self._follows("\\" + self.mark) else 2
            if char == "'":
                return

    def _double(self, depth: int, line: _Line) -> None:
        if depth > _DEEPEST:
            self._doubt(f"substitutions are nested more than {_DEEPEST} deep")
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == self.mark:
                self._place_quoted("double", line)
            elif self._follows("\\\n"):
                self._continued_line()
            elif char == "\\":
                self.at += 1 if self._follows("\\" + self.mark) else 2
            elif char == "`":
                self._backticks()
            elif char == "$" and self._follows('$"'):
                self.at += 1
            elif char == "$":
                self._dollar(depth, in_quotes=True)
            else:
                self.at += 1
                if char == '"':
                    return

    def _backticks(self) -> None:
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == self.mark:
                self._place("refused", "it is inside `...`, where quoting is ambiguous; write $(...) instead")
                continue
            self.at += 1 if char != "\\" or self._follows("\\" + self.mark) else 2
            if char == "`":
                return

    # -- expansions ----------------------------------------------------------------------------------------------------

    def _refusing(self, read: Callable[[], None]) -> None:
        """Refuses templates in quotes inside of the shell's own `${...}`, where bash has special rules."""
        before = len(self.places)
        read()
        for index in range(before, len(self.places)):
            self.places[index] = ShellContext("refused", self.places[index].at, _IN_PARAMETER)

    def _parameter(self, depth: int, *, in_quotes: bool) -> None:
        """Reads the shell's own `${...}`."""
        if depth > _DEEPEST:
            self._doubt(f"substitutions are nested more than {_DEEPEST} deep")
            return
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == self.mark:
                self._place("refused", _IN_PARAMETER)
            elif char == "\\":
                self.at += 1 if self._follows("\\" + self.mark) else 2
            elif char == "'" and in_quotes:
                self._doubt('a single quote inside "${...}" before it cannot be read without doubt')
                self.at += 1
            elif char == "'":
                self.at += 1
                self._refusing(lambda: self._single(_Line()))
            elif char == '"':
                self.at += 1
                self._refusing(lambda: self._double(depth + 1, _Line()))
            elif char == "`":
                self._backticks()
            elif char == "$" and not in_quotes and self._follows("$'"):
                self.at += 2
                self._refusing(lambda: self._ansi(_Line()))
            elif char == "$":
                self._dollar(depth, in_quotes=in_quotes)
            else:
                self.at += 1
                if char == "}":
                    return

    def _arithmetic(self, closer: str, depth: int) -> None:
        """Reads arithmetic, where only whole numbers are safe: a name may be `a[$(command)]`, and is evaluated."""
        if depth > _DEEPEST:
            self._doubt(f"substitutions are nested more than {_DEEPEST} deep")
            return
        opened = 0
        opener, end = ("[", "]") if closer == "]" else ("(", ")")
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == self.mark:
                self._place("arithmetic")
            elif char == "\\":
                self.at += 1 if self._follows("\\" + self.mark) else 2
            elif char == end and not opened:
                if not self._follows(closer):
                    self._doubt("`((` before it may be arithmetic or two subshells; put a space between")
                    self.at += 1
                else:
                    self.at += len(closer)
                return
            elif char in (opener, end):
                opened += 1 if char == opener else -1
                self.at += 1
            elif char == "`":
                self._backticks()
            elif char == "$" and not self._follows("$'"):
                self._dollar(depth, in_quotes=True)
            elif char in "'\"#\n":
                # Quotes, a comment or several lines: it may be commands after all.
                if char != "#" or self.text[self.at - 1 : self.at] in (" ", "\t", "\n"):
                    self._doubt("`((` before it may be arithmetic or two subshells; put a space between")
                self.at += 1
            else:
                self.at += 1

    # -- comments and here-documents -----------------------------------------------------------------------------------

    def _comment(self) -> None:
        while self.at < len(self.text) and self.text[self.at] != "\n":
            if self.text[self.at] == self.mark:
                self._place("comment")
            else:
                self.at += 1

    def _here_operator(self) -> None:
        self.at += 2
        strips_tabs = self._follows("-")
        self.at += strips_tabs
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        delimiter, is_quoted = "", False
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|()<>":
            char = self.text[self.at]
            if char == self.mark:
                self._place("refused", "it is in the word that ends a here-document")
                self._doubt("a here-document before it ends with an unknown word")
                continue
            if char in "'\"":
                is_quoted = True
                end = self.text.find(char, self.at + 1)
                inner = self.text[self.at + 1 : end] if end > 0 else ""
                if end < 0 or self.mark in inner or "\\" in inner or "\n" in inner:
                    self._doubt("a here-document before it ends with a word that cannot be read")
                    self.at += 1
                    continue
                delimiter += inner
                self.at = end + 1
                continue
            if char in "$`":
                self._doubt("a here-document before it ends with a word that cannot be read")
            if char == "\\":
                is_quoted = True
                self.at += 1
                char = self.text[self.at : self.at + 1]
                if char in (self.mark, "\n", ""):
                    self._doubt("a here-document before it ends with a word that cannot be read")
                    continue
            delimiter += char
            self.at += 1
        self._pending.append((delimiter, is_quoted, strips_tabs))

    def _here_bodies(self, depth: int) -> None:
        """Reads, after a newline, the bodies of the here-documents that began on the line before."""
        pending, self._pending = self._pending, []
        for delimiter, is_quoted, strips_tabs in pending:
            start = self.at
            end, after = self._here_end(delimiter, strips_tabs)
            self.heres.append(Here(start, end, delimiter, strips_tabs))
            if depth:
                self._doubt("a here-document inside $(...) before it cannot be read without doubt")
            while self.at < end:
                char = self.text[self.at]
                if char == self.mark:
                    self._here_mark(start, is_quoted=is_quoted)
                elif is_quoted:
                    self.at += 1
                elif char == "\\":
                    self.at += 1 if self._follows("\\" + self.mark) else 2
                elif char == "`" or (char == "$" and self.text[self.at + 1 : self.at + 2] in tuple("({[")):
                    # Bash takes the lines first and interprets their content later.
                    before = len(self.places)
                    if char == "`":
                        self._backticks()
                    else:
                        self._dollar(depth + 1, in_quotes=True)
                    for index in range(before, len(self.places)):
                        reason = "it is inside a substitution in a here-document; set a variable first"
                        self.places[index] = ShellContext("refused", self.places[index].at, reason)
                    if self.at > end:
                        self._doubt("a substitution in a here-document before it does not end there")
                else:
                    self.at += 1
            self.at = max(self.at, after)

    def _here_mark(self, start: int, *, is_quoted: bool) -> None:
        if self._backslashes(start) % 2 and not is_quoted:
            self._place("refused", "it follows a backslash")
        else:
            self._place("here-raw" if is_quoted else "here")

    def _here_end(self, delimiter: str, strips_tabs: bool) -> tuple[int, int]:
        """Returns where the body ends, and where the script continues."""
        at = self.at
        while at < len(self.text):
            newline = self.text.find("\n", at)
            newline = len(self.text) if newline < 0 else newline
            line = self.text[at:newline]
            if (line.lstrip("\t") if strips_tabs else line) == delimiter:
                return at, min(newline + 1, len(self.text))
            at = newline + 1
        return len(self.text), len(self.text)


class _Line:
    """The words of the command being read, as far as they decide how a value among them is used."""

    def __init__(self) -> None:
        self.word = ""
        self.in_word = False
        self.is_target = False
        """The word is the target or source of a redirection, and not a word of the command itself."""
        self._words: list[str] = []
        self._test_from = -1
        self._compares = False

    def add(self, char: str) -> None:
        self.word += char
        self.in_word = True

    def inside(self) -> None:
        """Notes that a quote, an expansion or a value was part of the word."""
        self.word += "\0"
        self.in_word = True

    def end_word(self, places: list[ShellContext]) -> None:
        if not self.in_word:
            return
        word, is_target = self.word, self.is_target
        self.word, self.in_word, self.is_target = "", False, False
        if is_target:
            return
        self._words.append(word)
        if word == "[[":
            self._test_from, self._compares = len(places), False
        elif self._test_from >= 0:
            self._compares = self._compares or word in _COMPARES
            if word == "]]":
                if self._compares:
                    for index in range(self._test_from, len(places)):
                        if places[index].how in ("word", "double", "single", "ansi"):
                            places[index] = places[index]._replace(how="number")
                self._test_from = -1

    def end_command(self, places: list[ShellContext]) -> None:
        self.end_word(places)
        self._words, self.is_target = [], False

    def how(self) -> tuple[How, str]:
        """Returns how to quote a value that comes next in this command."""
        words = self._words
        if self.is_target:
            return "word", ""
        if _SUBSCRIPT.fullmatch(self.word):
            return "number", ""
        for word in words:
            if word in _RUNS_WORDS:
                return "refused", f"`{word}` reads its words as code"
            if word in _NAMES_VARIABLE and _NAMES_VARIABLE[word] in words:
                return "refused", f"`{word} {_NAMES_VARIABLE[word]}` takes the name of a variable, which may hold code"
        if len(words) > 1 and re.fullmatch(r"-[a-zA-Z]*c", words[-1]):
            shells = [word for word in words if word.rpartition("/")[2] in _SHELLS]
            if shells:
                return "refused", f"what follows `{shells[0]} {words[-1]}` is code to another shell; use its arguments"
        return "word", ""
