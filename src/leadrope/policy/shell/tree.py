"""Walks one parsed shell script: which commands are where, and in which shell."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from leadrope.policy.programs.catalog import obeys_input, tell
from leadrope.policy.programs.deletions import deletions
from leadrope.policy.programs.wrappers import only_bash
from leadrope.policy.shell.path_words import named_by, path_words
from leadrope.policy.shell.reading import PathWord
from leadrope.policy.shell.scope import Scope, document, moved
from leadrope.policy.shell.words import UNKNOWN, UNKNOWN_PATH, Word, WordReader, is_name, is_number, known, names

if TYPE_CHECKING:
    from tree_sitter import Node

    from leadrope.policy.programs.effects import ProgramEffect
    from leadrope.policy.shell.reader import Scan

MAX_PROGRAMS = 200
# Deeper than any command that a person writes; the walk below recurses about three times per level.
MAX_DEPTH = 60

_COMPARISONS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_PLAIN_STATEMENTS = names(
    """command list pipeline redirected_statement comment subshell negated_command compound_statement
    variable_assignment variable_assignments test_command if_statement elif_clause else_clause"""
)
_TOKENS = names("; & && || | |& ;; ( ) { } if then elif else fi while until do done for in case esac function ! select")


def _holds_list(node: Node) -> bool:
    return node.type == "list" or (
        node.type == "redirected_statement" and any(_holds_list(child) for child in node.named_children)
    )


class Tree:
    """One parsed shell script, walked once by `statements`. Unlisted node types make the reading opaque."""

    def __init__(self, scan: Scan, source: bytes) -> None:
        self._scan = scan
        self._source = source
        self._inside: list[Node] = []
        self._words = WordReader(source, scan.variables, tell=scan.tell, inside=self._inside.append)

    def statements(self, node: Node, scope: Scope, depth: int) -> None:
        for child in node.children:
            if self._scan.full:
                return
            following = child.next_sibling
            beside = following is not None and following.type == "&"
            if beside:
                self._scan.extras["a command in the background"] = None
            if child.is_named:
                self._statement(child, scope.inner(loose=True) if beside else scope, depth + 1)
            elif child.type not in _TOKENS and child.type.strip():
                self._scan.tell(f"a {child.type!r} that is not known here")

    def _statement(self, node: Node, scope: Scope, depth: int) -> None:
        if depth > MAX_DEPTH:
            return self._scan.tell("nested too deeply")
        kind = node.type
        if kind not in _PLAIN_STATEMENTS:
            self._scan.extras[f"a {kind.replace('_', ' ')}"] = None
        if kind == "command":
            self._command(node, scope, depth, ())
        elif kind == "list":
            for part in self._flat(node):
                self._statement(part, scope, depth + 1)
        elif kind == "pipeline":
            self._pipeline(node, scope, depth)
        elif kind == "redirected_statement":
            self._redirected(node, scope, depth)
        elif kind == "comment":
            if node.start_byte and self._source[node.start_byte - 1 : node.start_byte] not in (
                b" ",
                b"\t",
                b"\n",
                b";",
            ):
                self._scan.tell("a comment that bash may not read as one")
        elif kind in ("subshell", "negated_command"):
            self.statements(node, scope.inner() if kind == "subshell" else scope, depth)
        elif kind == "compound_statement":
            self._compound(node, scope, depth)
        elif kind in ("if_statement", "elif_clause", "else_clause", "do_group"):
            self._branch(node, scope, depth, loose=False)
        elif kind in ("while_statement", "for_statement", "c_style_for_statement"):
            self._loop(node, scope, depth)
        elif kind == "case_statement":
            self._case(node, scope, depth)
        elif kind == "function_definition":
            self._function(node, scope, depth)
        elif kind == "variable_assignment":
            self._assignment(node, scope, exported=False)
        elif kind == "variable_assignments":
            for child in node.named_children:
                self._assignment(child, scope, exported=False)
        elif kind == "declaration_command":
            self._declaration(node, scope)
        elif kind == "unset_command":
            if any(c.type != "variable_name" and self._text(c) not in ("-v", "-f") for c in node.named_children):
                self._scan.tell("unset with a name that is not known")
        elif kind == "test_command":
            self._test(node)
        else:
            self._scan.tell(f"a {kind.replace('_', ' ')}, which is not known here")
        return self._drain(scope, depth)

    def _drain(self, scope: Scope, depth: int) -> None:
        """Reads the substitutions found in words."""
        while self._inside:
            node = self._inside.pop()
            self._scan.extras["a substitution"] = None
            text = self._text(node).lstrip()
            if text.startswith("`") and "\\" in text:
                self._scan.tell("backslashes inside backticks")
            before = self._inside[:]
            self._inside.clear()
            for child in node.children:
                if child.is_named and child.type == "file_redirect":
                    self._redirect(child, scope)
                elif child.is_named:
                    self._statement(child, scope.inner(loose=node.type == "process_substitution"), depth + 1)
                elif child.type.strip() not in ("$(", ")", "`", "<(", ">(", ";", "&", "\n", ""):
                    self._scan.tell("a substitution that is not known here")
            self._inside.extend(before)

    def _flat(self, node: Node) -> list[Node]:
        """Flattens a list, whose nodes nest to the left as deep as the list is long."""
        parts: list[Node] = []
        stack = [node]
        while stack:
            current = stack.pop()
            if current.type == "list":
                if any(not child.is_named and child.type not in ("&&", "||") for child in current.children):
                    self._scan.tell("a list of a form that is not known here")
                stack.extend(reversed(current.named_children))
            else:
                parts.append(current)
                if len(parts) > MAX_PROGRAMS:
                    self._scan.tell(f"over {MAX_PROGRAMS} commands")
                    self._scan.full = True
                    return []
        return parts

    def _pipeline(self, node: Node, scope: Scope, depth: int) -> None:
        self._scan.after.open_group()
        for place, part in enumerate(node.named_children):
            inner = scope.inner(fed=place > 0)
            self._statement(part, inner, depth + 1)
            if place == 0 and inner.cwd != scope.cwd and _holds_list(part):
                # `cd a && cat < b | c`: the grammar puts into the pipeline what bash runs before it.
                scope.cwd = UNKNOWN_PATH
        self._scan.after.close_group()

    def _branch(self, node: Node, scope: Scope, depth: int, *, loose: bool) -> None:
        inner = scope.inner(loose=loose)
        for child in node.children:
            if child.is_named:
                self._statement(child, inner, depth + 1)
            elif child.type not in _TOKENS and child.type.strip():
                self._scan.tell(f"a {child.type!r} that is not known here")
        if inner.cwd != scope.cwd:
            scope.cwd = UNKNOWN_PATH

    def _loop(self, node: Node, scope: Scope, depth: int) -> None:
        inner = scope.inner(loose=True)
        values: list[Word] = []
        name = ""
        for child in node.named_children:
            if child.type == "do_group" and name:
                self._scan.variables.assign(name, known("1") if values and all(map(is_number, values)) else UNKNOWN)
            if child.type == "do_group" or node.type == "while_statement":
                self._statement(child, inner, depth + 1)
            elif node.type == "c_style_for_statement":
                self._arithmetic_part(child)
            elif child.type == "variable_name":
                name = self._text(child)
            else:
                values.append(self._words.word(child))
        if name:
            self._scan.after.assign(name, UNKNOWN, exported=False)
            self._scan.assigned[name, None] = None
            for value in values:
                self._scan.name(path_words(value, scope.cwd))
        if inner.cwd != scope.cwd:
            scope.cwd = UNKNOWN_PATH

    def _arithmetic_part(self, node: Node) -> None:
        if node.type in ("compound_statement", "command"):
            return self._scan.tell("a loop of a form that is not known here")
        return self._words.arithmetic(self._text(node))

    def _compound(self, node: Node, scope: Scope, depth: int) -> None:
        text = self._text(node)
        if text.startswith("(("):
            self._scan.extras["arithmetic"] = None
            if not text.endswith("))"):
                self._scan.tell("arithmetic in a form that is not known here")
            self._words.arithmetic(text[2:-2])
            return
        self.statements(node, scope, depth)

    def _case(self, node: Node, scope: Scope, depth: int) -> None:
        for child in node.named_children:
            if child.type != "case_item":
                self._words.word(child)
                continue
            inner = scope.inner()
            closed = False
            for part in child.children:
                if part.type == ")" and not part.is_named:
                    closed = True
                elif part.is_named and not closed:
                    self._words.word(part)
                elif part.is_named:
                    self._statement(part, inner, depth + 1)
            if inner.cwd != scope.cwd:
                scope.cwd = UNKNOWN_PATH

    def _function(self, node: Node, scope: Scope, depth: int) -> None:
        name, *rest = node.named_children
        told = self._words.word(name).text
        if not is_name(told) or tell((Word(told, told or ""), UNKNOWN), frozenset()).role != "unknown":
            self._scan.tell("a function that may stand for another program")
        if told:
            self._scan.functions.add(told)
        for part in rest:
            if part.type == "file_redirect":
                self._redirect(part, scope)
            else:
                inner = scope.inner(fed=True, loose=True)
                self._statement(part, inner, depth + 1)
                if inner.cwd != scope.cwd:
                    scope.cwd = UNKNOWN_PATH

    def _assignment(self, node: Node, scope: Scope, *, exported: bool) -> None:
        target, *rest = node.named_children
        if target.type == "subscript":
            self._words.subscript(target)
            target = target.named_children[0]
        name = self._text(target)
        value = Word("", "", "")
        for part in rest:
            if part.type == "array":
                value = Word(None, splits=True)
                for item in part.named_children:
                    if self._text(item).startswith("["):
                        self._scan.tell("an index that may run what its value says")
                    self._words.word(item)
            else:
                value = self._words.word(part)
        appends = any(child.type == "+=" for child in node.children)
        self._scan.variables.assign(name, value, appends=appends)
        self._scan.after.assign(name, value, exported=exported)
        self._scan.assigned[name, None if value.splits or target is not node.named_children[0] else value.text] = None
        if rest:
            self._scan.name(path_words(value, scope.cwd))

    def _declaration(self, node: Node, scope: Scope) -> None:
        verb = node.children[0].type
        exported = verb in ("export", "declare", "typeset")
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self._assignment(child, scope, exported=exported)
            elif child.type == "word" and re.fullmatch(r"-[xrgaAp]+", self._text(child)):
                continue
            elif child.type != "variable_name":
                self._scan.tell(f"{verb} with a name or option that is not known")
            elif exported:
                self._scan.after.export(self._text(child))

    def _test(self, node: Node) -> None:
        double = node.children[0].type == "[["
        if node.children[0].type not in ("[", "[["):
            return self._compound(node, Scope(), 0)
        words: list[Word] = []
        stack = list(reversed(node.children[1:-1]))
        while stack:
            child = stack.pop()
            if child.type in ("unary_expression", "binary_expression", "parenthesized_expression", "negated_command"):
                stack.extend(reversed(child.children))
            elif child.is_named:
                words.append(self._words.word(child))
            else:
                text = child.type
                words.append(Word(text, text, text))
        if not double:
            if reason := tell((Word("test", "test", bare=True), *words), frozenset()).opaque:
                self._scan.tell(reason)
            return None
        for place, word in enumerate(words):
            if word.text in ("-v", "-R") and not is_name(words[place + 1].text if place + 1 < len(words) else None):
                self._scan.tell("a test that may run what its value says")
            if word.text in _COMPARISONS:
                sides = words[max(0, place - 1) : place] + words[place + 1 : place + 2]
                if not all(is_number(side) for side in sides):
                    self._scan.tell("a comparison that may run what its values say")
        return None

    def _redirected(self, node: Node, scope: Scope, depth: int) -> None:
        body: Node | None = None
        more: list[Node] = []
        fed = False
        late: list[Node] = []
        for child in node.named_children:
            if child.type == "file_redirect":
                if body is not None and body.type == "list":
                    # The grammar applies to the whole list what bash applies to its last command.
                    late.append(child)
                else:
                    more.extend(self._redirect(child, scope))
                fed = fed or self._text(child).lstrip("0123456789").startswith("<")
            elif child.type == "herestring_redirect":
                fed = True
                self._scan.extras["a redirection"] = None
                for part in child.named_children:
                    self._words.word(part)
            elif child.type == "heredoc_redirect":
                fed = True
                self._scan.extras["a redirection"] = None
            elif body is None:
                body = child
            else:
                self._scan.tell("a redirection of a form that is not known here")
        inner = scope.inner(fed=fed)
        if body is not None and body.type == "command":
            self._command(body, inner, depth, tuple(more))
        elif more:
            self._scan.tell("words after a redirection")
        elif body is not None:
            self._statement(body, inner, depth + 1)
        scope.cwd = inner.cwd
        for child in late:
            if self._redirect(child, scope, after=True):
                self._scan.tell("words after a redirection")
        for child in node.named_children:
            if child.type == "heredoc_redirect":
                self._heredoc(child, scope, depth, body)

    def _heredoc(self, node: Node, scope: Scope, depth: int, body: Node | None) -> None:
        """Reads a here-document, and the commands that the grammar attaches to it (`cat <<A | sh`)."""
        start = end = None
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
            elif child.type == "heredoc_end":
                end = child
            elif child.type == "heredoc_body":
                quoted = start is not None and self._text(start)[:1] in "'\"\\"
                if not quoted and b"\\\n" in self._source[child.start_byte : child.end_byte]:
                    self._scan.tell("a here-document with lines that continue")
            elif child.type == "file_redirect":
                for extra in self._redirect(child, scope):
                    self._scan.tell(f"words after a redirection: {self._text(extra)!r}")
            elif child.type == "pipeline":
                self._pipeline(child, scope.inner(fed=True), depth + 1)
            elif child.is_named and child.type in ("word", "string", "raw_string", "number", "concatenation"):
                self._scan.tell("words after a here-document")
            elif child.is_named:
                self._statement(child, scope, depth + 1)
            elif child.type not in ("<<", "<<-", "&&", "||"):
                self._scan.tell(f"a {child.type!r} after a here-document")
        if start is None or end is None:
            return self._scan.tell("a here-document of a form that is not known here")
        mark = self._text(start)
        span = document(self._source, mark, start.end_byte, end.end_byte, dashed=node.children[0].type == "<<-")
        if span is None:
            return self._scan.tell("a here-document of a form that is not known here")
        return None if mark[:1] in "'\"\\" else self._live(*span, end)

    def _live(self, begin: int, stop: int, end: Node) -> None:
        """Reads the substitutions in an unquoted here-document, which run."""
        body = end.prev_named_sibling
        if body is not None and body.type == "heredoc_body":
            self._words.literal(body, start=begin, end=stop)
        elif b"$" in self._source[begin:stop] or b"`" in self._source[begin:stop]:
            self._scan.tell("a here-document that this reader and bash may read differently")

    def _redirect(self, node: Node, scope: Scope, *, after: bool = False) -> list[Node]:
        """Notes what is written; returns the words that the grammar took for further targets."""
        operator = ""
        targets: list[Node] = []
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if not child.is_named:
                operator = child.type
            else:
                targets.append(child)
        if operator in (">&-", "<&-"):
            return targets
        if not targets:
            self._scan.tell("a redirection of a form that is not known here")
            return []
        target = self._words.word(targets[0])
        if operator in (">&", "<&") and (is_number(target) or target.text == "-"):
            return targets[1:]
        if target.text != "/dev/null":
            self._scan.extras["a redirection"] = None
        if operator in ("<", "<&", "<>"):
            self._scan.name(self._moved(path_words(target, scope.cwd)))
        if operator not in ("<", "<&"):
            note = self._scan.after.write if after else self._scan.after.redirect
            note(target, scope.cwd, loose=scope.loose)
        return targets[1:]

    def _command(self, node: Node, scope: Scope, depth: int, more: tuple[Node, ...]) -> None:
        words: list[Word] = []
        assigns: list[Node] = []
        extra: list[Node] = []
        fed = scope.fed
        last = -1
        for child in node.children:
            kind = child.type
            if last >= 0 and child.start_byte - last <= 0 and kind not in ("file_redirect", "herestring_redirect"):
                self._scan.tell("words without a gap between them")
            last = child.end_byte
            if kind == "variable_assignment":
                assigns.append(child)
            elif kind == "command_name":
                words.append(self._words.word(child.children[0]))
            elif kind == "file_redirect":
                extra.extend(self._redirect(child, scope))
                fed = fed or self._text(child).lstrip("0123456789").startswith("<")
            elif kind == "herestring_redirect":
                fed = True
                self._scan.extras["a redirection"] = None
                for part in child.named_children:
                    self._words.word(part)
            elif child.is_named:
                words.append(self._words.word(child))
            elif kind == "$":
                self._scan.tell("a lone $")
            else:
                self._scan.tell(f"a {kind!r} inside a command")
        if extra:
            self._scan.tell("words after a redirection")
        words.extend(self._words.word(child) for child in more)
        for child in assigns:
            self._assignment(child, scope, exported=bool(words))
        if words:
            self._start(words, scope.inner(fed=fed), depth)
            if words[0].text in ("cd", "pushd", "popd"):
                scope.cwd = moved(scope.cwd, words)
                if scope.cwd is not None and self._scan.after.is_moved(scope.cwd, None):
                    scope.cwd = UNKNOWN_PATH

    def _start(self, words: list[Word], scope: Scope, depth: int) -> None:
        """Records one program, and those that it starts in turn."""
        if self._scan.full:
            return None
        if len(self._scan.programs) >= MAX_PROGRAMS:
            self._scan.full = True
            return self._scan.tell(f"over {MAX_PROGRAMS} commands")
        if depth > MAX_DEPTH:
            return self._scan.tell("nested too deeply")
        first = words[0]
        self._scan.program(words, scope)
        if first.text is None or first.splits or first.glob or not first.text:
            return self._scan.tell("a program whose name is not known")
        told = tell(words, frozenset(self._scan.functions))
        self._scan.name(self._moved(named_by(words, scope.cwd, may_change=told.role in ("runner", "script"))))
        self._scan.deletes.update(dict.fromkeys(deletions(words, scope.cwd)))
        if told.opaque:
            self._scan.tell(told.opaque)
        if told.unknown:
            self._scan.tell_unknown(told.unknown)
        if told.role == "unknown":
            self._scan.may_start(words, scope)
        self._input(told, first.text, scope)
        for name, value in told.assigns:
            self._scan.assigned[name, None if value.splits else value.text] = None
            self._scan.variables.assign(name, value)
            self._scan.after.assign(name, value, exported=told.role == "wrapper")
        self._scan.after.start(told.role, words, cwd=scope.cwd, loose=scope.loose, fed=scope.fed)
        for target in told.writes:
            self._scan.after.write(target, scope.cwd, loose=scope.loose)
        if posixpath.basename(first.text) in ("ln", "mv"):
            for target in told.writes:
                self._scan.after.link(target, scope.cwd)
        inner = scope.inner(wrappers=(posixpath.basename(first.text),))
        for starts in told.starts:
            self._start(list(starts), inner, depth + 1)
        for text in told.texts:
            if told.posix and only_bash(text):
                self._scan.tell("a text that only bash reads as it is read here")
            self._scan.text(text, scope=inner.inner(loose=True), depth=depth + 1)
        return None

    def _moved(self, found: Iterable[PathWord]) -> Iterator[PathWord]:
        """Yields the same paths, and any path for one that leads over a link created by this line."""
        for path in found:
            yield path
            if not path.is_unknown and self._scan.after.is_moved(path.prefix, path.cwd):
                yield PathWord("", path.cwd, is_unknown=True)

    def _input(self, told: ProgramEffect, program: str, scope: Scope) -> None:
        """Judges what it means for a program that this command line provides its input."""
        name = posixpath.basename(program)
        if name == "exec" and scope.fed:
            # From here on the shell itself reads this line's input, and so does whatever it starts.
            if scope.loose:
                self._scan.tell("exec with input, in a place that may run again or later")
            self._scan.is_fed = True
        if scope.fed or self._scan.is_fed:
            if obeys_input(name):
                self._scan.tell(f"{name} runs commands that it reads from its input")
            elif told.role == "unknown" and not told.opaque:
                self._scan.tell_unknown(f"{name} is not known here: it may run what it is given")

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()
