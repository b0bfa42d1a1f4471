"""Runs a piece of Python code with its inputs and writes its result; a script that needs only the standard library.

Forked from the pool (`prepare` once, then `run` in each fork), or started by another, possibly older Python: `python -I
code_runner.py ANSWER LETTER LIMIT`, two descriptors and a number.

The letter is {"source": text, "inputs": values by name}, the answer {"value": ...} or {"error": {"kind", "message",
"detail"}}. If the code sets the variable `next`, the answer also has its value.
"""

import ast
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "<code>"
_TYPES: "dict[str, Any]" = {
    "int": int,
    "float": (int, float),
    "str": str,
    "bool": bool,
    "list": list,
    "List": list,
    "dict": dict,
    "Dict": dict,
    "None": type(None),
}
_WORDS = {dict: "dict", list: "list", str: "str", int: "int", float: "float", bool: "bool", type(None): "None"}


class Refused(Exception):
    def __init__(self, kind: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.told = {"kind": kind, "message": message, "detail": detail}


def prepare() -> None:
    """Loads once, before the forks, what all code needs: site-packages and the modules that format errors."""
    import linecache  # noqa: F401, PLC0415
    import site  # noqa: PLC0415
    import traceback  # noqa: F401, PLC0415

    site.main()


_again: "tuple[str, tuple[str, ...]] | None" = None
_read: "dict[tuple[str, tuple[str, ...]], CodeProgram]" = {}
_LONGEST_READ = 16 * 1024
"""Longer code is compiled in the fork only: while a worker compiles, it does not read stop messages."""


def read_again(letter: "dict[str, Any]") -> bool:
    """Compiles code seen for the second time, for the next fork and all later ones; returns whether it did."""
    global _again  # of this process, which runs one piece of code after another
    key = _key(letter)
    if key in _read or len(key[0]) > _LONGEST_READ:
        return False
    if key != _again:
        _again = key
        return False
    import warnings  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # each fork writes the warnings to its own stderr
            program = CodeProgram(*key)
    except Exception:  # noqa: BLE001  # each fork meets the same error and reports it
        return False
    if program.error:  # as above; it may also be a warning
        return False
    _read.clear()
    _read[key] = program
    return True


def _key(letter: "dict[str, Any]") -> "tuple[str, tuple[str, ...]]":
    return letter["source"], tuple(letter["inputs"])


def run(letter: "dict[str, Any]", *, answer: int, limit: int) -> None:
    try:
        data = as_json(answer_of(letter), limit)
    except Refused as refused:
        data = json.dumps({"error": refused.told}).encode()
    finish()
    left = memoryview(data)
    while left:
        left = left[os.write(answer, left) :]
    os.close(answer)


class CodeProgram:
    """Compiled code for inputs with these names."""

    def __init__(self, source: str, names: "tuple[str, ...]") -> None:
        try:
            tree = ast.parse(source, NAME)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise Refused("code_failed", f"it is not Python: {_syntax(error)}") from None
        self.declared = declarations(tree)
        self.missing = [name for name in self.declared if name not in names and not _is_set(tree, name)]
        self.types = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & _TYPE_NAMES
        self.lines = source.splitlines(keepends=True)
        self.chooses = stores(tree, "next")
        self.returns = _returns(tree)
        self.code: Any = None
        self.error = ""
        """Reported after errors of the inputs."""
        try:
            if self.returns:
                tree = _as_function(tree, names, chooses=self.chooses)
            self.code = compile(tree, NAME, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.error = f"it is not Python: {_syntax(error)}"


def answer_of(letter: "dict[str, Any]") -> "dict[str, Any]":
    key = _key(letter)
    program = _read.get(key) or CodeProgram(*key)
    given = checked(program, letter["inputs"])
    namespace = _main_module(given)
    _give_types(program.types, namespace)
    _remember_lines(program.lines)
    if program.error:
        raise Refused("code_failed", program.error)
    try:
        exec(program.code, namespace)  # noqa: S102  # this is what it is for
        if program.returns:
            value, *chosen = namespace["code"](**given)
        else:
            chosen = [namespace["next"]] if program.chooses and "next" in namespace else []
            if "result" not in namespace and not chosen:
                raise Refused("code_failed", "the code never sets `result`, and returns nothing")
            value = namespace.get("result")
    except Refused:
        raise
    except SyntaxError as error:
        raise Refused("code_failed", f"it is not Python: {_syntax(error)}") from None
    except SystemExit as error:
        raise Refused("code_failed", f"the code left with exit({error.code!r}); set `result` instead") from None
    except BaseException as error:  # noqa: BLE001  # whatever was raised is the result of the code
        raise Refused("code_failed", *_raised(error)) from None
    declared = program.declared
    if "result" in declared and not fits(value, declared["result"]):
        wanted = ast.unparse(declared["result"]) if hasattr(ast, "unparse") else "another type"
        raise Refused("bad_result", f"result is declared {wanted}, and is {word(value)}")
    if chosen and not (isinstance(chosen[0], str) and chosen[0]):
        raise Refused("bad_next", f"`next` is {chosen[0]!r:.60}, and not the name of a step")
    return {"value": value, "next": chosen[0]} if chosen else {"value": value}


# -- inputs -----------------------------------------------------------------------------------------------------------


def declarations(tree: ast.Module) -> "dict[str, ast.expr]":
    """Returns the declarations `name: type` at the top level, with or without a value."""
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.setdefault(statement.target.id, statement.annotation)
    return found


def checked(program: CodeProgram, inputs: "dict[str, Any]") -> "dict[str, Any]":
    given = dict(inputs)
    for name, annotation in program.declared.items():
        if name in given:
            given[name] = _as_declared(given[name], annotation)
            if not fits(given[name], annotation):
                wanted = ast.unparse(annotation) if hasattr(ast, "unparse") else "another type"
                raise Refused("bad_input", f"input {name} is declared {wanted}, and is {word(given[name])}")
        elif name in program.missing:
            known = ", ".join(sorted(given)) or "none"
            raise Refused("bad_input", f"input {name} is declared and not given (given: {known})")
    return given


def _is_set(tree: ast.Module, name: str) -> bool:
    """Whether some statement assigns a value to the name; a declaration alone does not."""
    bare = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.value is None}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) and id(node) not in bare:
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name.partition(".")[0]) == name:
            return True
    return False


def _as_declared(value: "Any", annotation: ast.expr) -> "Any":
    """Parses a JSON text where a list or dict is declared, as templates do."""
    if not isinstance(value, str) or fits(value, annotation) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if fits(parsed, annotation) else value


def fits(value: "Any", annotation: ast.expr) -> bool:
    """Whether the value has the outer type of the annotation; unknown types accept everything."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return fits(value, annotation.left) or fits(value, annotation.right)
    if isinstance(annotation, ast.Constant):
        return value is None if annotation.value is None else _fits_text(value, annotation.value)
    if isinstance(annotation, ast.Subscript):
        outer = _name(annotation.value)
        if outer == "Optional":
            return value is None or fits(value, annotation.slice)
        if outer == "Union":
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            return any(fits(value, part) for part in parts)
        return _is_a(value, outer)
    return _is_a(value, _name(annotation))


def _fits_text(value: "Any", text: "Any") -> bool:
    """Like `fits`, for an annotation in quotes."""
    try:
        return not isinstance(text, str) or fits(value, ast.parse(text, mode="eval").body)
    except SyntaxError:
        return True


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_a(value: "Any", name: str) -> bool:
    wanted = _TYPES.get(name)
    if wanted is None:
        return True
    if isinstance(value, bool):  # a bool is an int in Python
        return name == "bool"
    return isinstance(value, wanted)


def word(value: "Any") -> str:
    return _WORDS.get(type(value), type(value).__name__)


# -- running ----------------------------------------------------------------------------------------------------------


def _main_module(given: "dict[str, Any]") -> "dict[str, Any]":
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    sys.argv = [NAME]
    # After the packages: a file of the workspace must not shadow one of them.
    if os.getcwd() not in sys.path:  # noqa: PTH109
        sys.path.append(os.getcwd())  # noqa: PTH109
    namespace: dict[str, Any] = module.__dict__
    namespace.update(given)
    return namespace


_TYPE_NAMES = {"Any", "Optional", "typing"}


def _give_types(used: "set[str]", namespace: "dict[str, Any]") -> None:
    """Adds the names from `typing` that most code uses without importing them."""
    if used:
        import typing  # noqa: PLC0415  # few need it

        known = {"Any": typing.Any, "Optional": typing.Optional, "typing": typing}
        namespace.update((name, value) for name, value in known.items() if name not in namespace)


def own_nodes(tree: ast.Module) -> "list[ast.AST]":
    """Returns all nodes of the code except those inside of functions, classes and comprehensions."""
    found: list[ast.AST] = []
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        found.append(node)
        if not isinstance(node, _SCOPES):
            todo += ast.iter_child_nodes(node)
    return found


_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def stores(tree: ast.Module, name: str) -> bool:
    """Whether the code itself assigns this variable; a declaration alone does not."""
    nodes = own_nodes(tree)
    bare = {id(node.target) for node in nodes if isinstance(node, ast.AnnAssign) and node.value is None}
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) and id(node) not in bare
        for node in nodes
    )


def _returns(tree: ast.Module) -> bool:
    """Whether the code has a `return` outside of its own functions."""
    return any(isinstance(node, ast.Return) for node in own_nodes(tree))


def _as_function(tree: ast.Module, names: "tuple[str, ...]", *, chooses: bool) -> ast.Module:
    """Wraps the statements in a function `code`, which returns `result`, if that is set, where no `return` is reached.

    An explicit `return` gives a tuple: the value returned, then the value of `next` if the code has set it.
    """
    shell = ast.parse("def code(): pass", NAME)
    function = shell.body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101
    last = ast.parse("return locals().get('result')", NAME).body
    function.args.args = [ast.arg(arg=name, annotation=None) for name in names]
    function.body = [*tree.body, *last]
    for node in own_nodes(ast.Module(body=function.body, type_ignores=[])):
        if isinstance(node, ast.Return):
            chosen = "*[value for name, value in locals().items() if name == 'next']" if chooses else ""
            both = ast.parse(f"(None, {chosen})", NAME, mode="eval").body
            assert isinstance(both, ast.Tuple)  # noqa: S101
            both.elts[0] = node.value or ast.Constant(value=None)
            node.value = ast.copy_location(both, node)
    return ast.fix_missing_locations(shell)


def _remember_lines(lines: "list[str]") -> None:
    import linecache  # noqa: PLC0415

    linecache.cache[NAME] = (sum(map(len, lines)), None, lines, NAME)


def _raised(error: BaseException) -> "tuple[str, str]":
    """Returns the error in one line with its position in the code, and its traceback starting at the code."""
    import traceback  # noqa: PLC0415

    trace, line = error.__traceback__, 0
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    at = trace
    while at is not None:
        if at.tb_frame.f_code.co_filename == NAME:
            line = at.tb_lineno
        at = at.tb_next
    detail = "".join(traceback.format_exception(type(error), error, trace))
    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    return (f"line {line}: {said}" if line else said), detail


def _syntax(error: Exception) -> str:
    line = getattr(error, "lineno", None)
    return f"line {line}: {getattr(error, 'msg', error)}" if line else str(error)


def finish() -> None:
    """Does what Python does at exit: waits for threads, runs exit functions and flushes output."""
    if "threading" in sys.modules:
        import threading  # noqa: PLC0415

        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    if "atexit" in sys.modules:
        import atexit  # noqa: PLC0415

        atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed by the code, or nobody reads it
            continue


# -- the answer -------------------------------------------------------------------------------------------------------


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def as_json(told: "dict[str, Any]", limit: int) -> bytes:
    try:
        data = _ENCODER.encode(told).encode()
    except UnicodeEncodeError:
        raise Refused("bad_result", "result contains text that is not Unicode (half of a surrogate pair)") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused("bad_result", _unfit(told["value"], "result", set()) or f"result is not JSON: {error}") from None
    if len(data) > limit:
        raise Refused("bad_result", f"result has {len(data)} bytes as JSON, more than {limit}; write it to a file")
    return data


def _unfit(value: "Any", path: str, above: "set[int]") -> str:
    """Returns the path of the part of a value that JSON cannot represent."""
    if id(value) in above or len(above) > 200:
        return f"{path} holds itself, or is too deep for JSON"
    inner = {*above, id(value)}
    if isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, (str, int, float, bool, type(None))):
                return f"{path} has a key that is a {type(key).__name__}; JSON has texts only"
            if told := _unfit(one, f"{path}[{key!r}]", inner):
                return told
    elif isinstance(value, (list, tuple)):
        for index, one in enumerate(value):
            if told := _unfit(one, f"{path}[{index}]", inner):
                return told
    elif isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return f"{path} is {value}, which JSON does not have"
    elif not isinstance(value, (str, int, float, bool, type(None))):
        return f"{path} is a {type(value).__name__}, which is not a JSON value; make it a text, number, list or dict"
    return ""


def main() -> None:
    answer, letter, limit = (int(text) for text in sys.argv[1:4])
    with open(letter, encoding="utf-8") as file:  # noqa: PTH123  # a descriptor
        told = json.load(file)
    os.set_inheritable(answer, False)
    run(told, answer=answer, limit=limit)
    os._exit(0)


if __name__ == "__main__":
    main()
