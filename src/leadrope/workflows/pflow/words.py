"""Translates pflow's terms for steps to leadrope's before anything is checked; warns about what is lost.

Every function takes a step's values by key and changes them in place. Values that already use leadrope's terms stay
unchanged, so that a file which was read and written again reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from leadrope.regex import regex
from leadrope.workflows.language import shell_quoting, templates
from leadrope.workflows.model import FILE_SUFFIX, Step, filled_from_files
from leadrope.workflows.problems import Findings, Path, Position, move

HINT = "See docs/pflow.md."
TURNS = 100
"""Maximum number of turns of a pflow loop whose file does not set one."""
RETRY_WAIT_MOST_S = 60
_PROMPT_CACHE = "prompt_cache"
_CLAUDE = ("claude", "claude-code")
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_SANDBOX_LEVELS = {"read-only": "read-only", "workspace-write": "workspace", "workspace": "workspace"}
_OTHER_MODEL = "The step uses `step_model` of your config.toml, or its default."
_FOREIGN_MODEL = regex(
    r"(?:openai|azure|gemini|google|vertex_ai|bedrock|openrouter|ollama(?:_chat)?|mistral|groq|xai|cohere|deepseek"
    r"|perplexity|together_ai|fireworks_ai)/.*"
    r"|(?:gpt|o[1-9]|gemini|mistral|llama|deepseek|grok|command)[-_.0-9].*",
    re.IGNORECASE,
)


class PflowStep:
    """The values of one step, and where to report findings about it."""

    def __init__(
        self,
        values: dict[str, Any],
        path: Path,
        findings: Findings,
        places: dict[Path, Position],
        unreadable: set[Path],
    ) -> None:
        self.values = values
        self.path = path
        self._findings = findings
        self._places = places
        self._unreadable = unreadable

    def tell(self, key: str, message: str, hint: str | None = None, *, kind: str = "pflow_differs") -> None:
        where = (*self.path, key)
        self._findings.add(kind, f"{key}: {message}", path=where, at_key=True, warns=True, hint=hint or HINT)

    def refuse(self, key: str, message: str, available: Iterable[str] = ()) -> None:
        self._findings.add("wrong_value", f"{key}: {message}", path=(*self.path, key), available=available)

    def drop(self, key: str, why: str, hint: str | None = None) -> Any:
        """Removes a parameter and reports that."""
        if self.values.get(key) is not None:
            self.tell(key, f"left out: {why}", hint, kind="pflow_left_out")
        return self.values.pop(key, None)

    def refuse_file(self, key: str) -> None:
        """Refuses a value that is in another file; nothing more is reported about it."""
        file = self.values.pop(key)
        self._unreadable.add((*self.path, key))
        self._findings.add(
            "file_reference",
            f"{key}: {file} is a file whose text pflow puts here, and leadrope does not read it",
            path=(*self.path, key),
            found=file,
            hint=f"Write its text in a block: ```{key}.",
        )

    def rename(self, key: str, new: str) -> None:
        if key in self.values and new not in self.values:
            self.values[new] = self.values.pop(key)
            self.move((key,), (new,))

    def move(self, old: Path, new: Path) -> None:
        """Updates the positions of a value that was moved."""
        move(self._places, (*self.path, *old), (*self.path, *new))


def step(said: PflowStep, chunks: Mapping[str, str]) -> None:
    """Translates one step. `chunks` are those of the file's `## Cache`, by name."""
    kind = said.values.get("type")
    for key in FILE_PARAMETERS:
        if not is_file_reference(said.values.get(key)):
            continue
        if isinstance(kind, str) and key in filled_from_files(kind, "pflow"):
            said.rename(key, key + FILE_SUFFIX)
        else:
            said.refuse_file(key)
    if isinstance(kind, str):
        if kind.startswith("mcp-") and kind.count("-") > 1:
            _mcp(said, kind)
        _prompt_cache(said, kind, chunks)
        for change in _OF_TYPE.get(kind, ()):
            change(said)
    _batch(said)
    _loop(said)
    _retry(said, kind)
    _next(said, kind)


def whole(steps: Sequence[Step], findings: Findings) -> None:
    """Reports, once, findings about the file as a whole."""
    bare = [(step, words) for step in steps if (words := _bare_words(step))]
    if bare:
        step, words = bare[0]
        others = f", and so in {len(bare) - 1} other steps" if len(bare) > 1 else ""
        findings.add(
            "pflow_quoting",
            f"{words[0]} stands in a command without quotes{others}: its value is one word here, and is neither split "
            "nor expanded, while pflow makes it a part of the script",
            path=("steps", step.id, "command"),
            warns=True,
            hint="Where several words are meant, pass them by `env` and write `$NAME` without quotes.",
        )
    agents = [step for step in steps if step.type in ("agent", "claude-code") and "mode" not in step.parameters]
    if agents:
        findings.add(
            "pflow_asks",
            f"the agent of {agents[0].id!r} asks a person before it runs commands or edits files; pflow's never asks",
            path=("steps", agents[0].id, "type"),
            warns=True,
            hint="`mode: sandboxed` lets it work inside the sandbox without questions.",
        )


def _bare_words(step: Step) -> tuple[str, ...]:
    command = step.parameters.get("command")
    return shell_quoting.as_words(command) if step.type == "shell" and isinstance(command, str) else ()


# -- attributes of every step
# -------------------------------------------------------------------------------------------


def _batch(said: PflowStep) -> None:
    batch = said.values.get("batch")
    if not isinstance(batch, dict):
        return
    batch = said.values["batch"] = dict(batch)
    batch.setdefault("parallel", False)
    attempts, wait = batch.pop("max_retries", None), batch.pop("retry_wait", None)
    if attempts is None or attempts == 1:
        return
    if "retry" in said.values:
        said.tell("batch", "`max_retries` is left out, because the step has a `retry`, which counts for each item")
    else:
        said.values["retry"] = {"max": attempts, "wait": wait or 0}
        said.move(("batch",), ("retry",))


def _loop(said: PflowStep) -> None:
    loop = said.values.get("loop")
    if isinstance(loop, dict):
        said.values["loop"] = {**loop, "max_iterations": loop.get("max_iterations", TURNS)}


def _retry(said: PflowStep, kind: Any) -> None:
    retry = said.values.get("retry")
    if not isinstance(retry, dict):
        return
    wait = retry.get("wait")
    if isinstance(wait, int | float) and wait > RETRY_WAIT_MOST_S:
        said.values["retry"] = {**retry, "wait": RETRY_WAIT_MOST_S}
        said.tell("retry", f"`wait` is {RETRY_WAIT_MOST_S} seconds, which is the longest")
    if kind == "workflow":
        said.drop("retry", "pflow ignores it on a step that calls a workflow; give it to the steps inside")


def _next(said: PflowStep, kind: Any) -> None:
    """Translates `next`: pflow uses the first of several targets, unless the step's code chooses another."""
    following = said.values.get("next")
    if kind == "code" or not isinstance(following, str) or "," not in following:
        return
    targets = [name for part in following.split(",") if (name := part.strip()) and name != "end"]
    said.values["next"] = targets[0] if targets else "end"
    if len(targets) > 1:
        said.tell("next", f"only {targets[0]!r} follows, because a step of the type {kind!r} chooses no branch")


def _prompt_cache(said: PflowStep, kind: str, chunks: Mapping[str, str]) -> None:
    """Sends chunks of the prompt cache before the prompt, after the step's own system prompt."""
    if said.values.pop("prewarm", None):
        said.tell("prewarm", "left out: the agent program caches prompts by itself", kind="pflow_left_out")
    names = said.values.get(_PROMPT_CACHE)
    if names is None or kind != "llm":
        return
    del said.values[_PROMPT_CACHE]
    every = names if isinstance(names, list) else [names]
    for name in every:
        if name not in chunks:
            said.refuse(_PROMPT_CACHE, f"there is no chunk {name!r} in `## Cache`", chunks)
    own = said.values.get("system")
    texts = [chunks[name].strip() for name in every if name in chunks]
    said.values["system"] = "\n\n".join([*([own] if isinstance(own, str) and own else []), *texts])


_CHUNK_FENCE = regex(r"^ {0,3}(`{3,}|~{3,})[ \t]*(?:\S+[ \t]+)*cache[ \t]*$")


def cache_chunks(lines: Sequence[str]) -> dict[str, str]:
    """Returns the chunks of a `## Cache` section by template source: each ends with the template."""
    for start, line in enumerate(lines):
        if opening := _CHUNK_FENCE.match(line):
            end = next((at for at in range(start + 1, len(lines)) if lines[at].strip() == opening[1]), len(lines))
            return _chunks("\n".join(lines[start + 1 : end]))
    return {}


def _chunks(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    done = 0
    for one in templates.references(text):
        end = text.index("}", one.offset) + 1
        found[one.source] = text[done:end]
        done = end
    return found


# -- files beside the workflow ----------------------------------------------------------------------------------------

FILE_PARAMETERS = ("command", "code", "prompt", "stdin", "headers", "output_schema", "batch")
"""Parameters for which pflow also accepts the name of a file."""
_FILE_ENDINGS = (".md", ".txt", ".py", ".sh", ".yaml", ".yml", ".json")


def is_file_reference(value: Any) -> bool:
    """Whether pflow takes this for the name of a file: one word, with a leading `./` or a known suffix."""
    if not isinstance(value, str) or not value or "${" in value or "://" in value or re.search(r"[ \n]", value):
        return False
    return value.startswith(("./", "../")) or ("/" in value and value.lower().endswith(_FILE_ENDINGS))


# -- by type ----------------------------------------------------------------------------------------------------------


def _mcp(said: PflowStep, kind: str) -> None:
    """Translates `mcp-SERVER-TOOL`. Which hyphen separates the two is known once the connections are."""
    own = ("type", "timeout", "result_format", "inputs", "server", "tool", "arguments", *_EVERY)
    arguments = {key: said.values.pop(key) for key in [*said.values] if key not in own}
    for key in arguments:
        said.move((key,), ("arguments", key))
    said.values |= {"type": "mcp", "tool": kind.removeprefix("mcp-"), "arguments": arguments}


_EVERY = (
    *("after", "next", "on-error", "on_error", "when", "batch", "loop", "retry", "cache"),
    *("approval", "budget", "policy", _PROMPT_CACHE, "prewarm"),
)


def _agent(said: PflowStep) -> None:
    backend = said.values.pop("backend", None)
    if backend in _CLAUDE:
        said.values.setdefault("provider", "claude-code")
    elif backend is not None:
        said.tell("backend", f"there is no {backend!r} here: the step runs Claude Code", kind="pflow_left_out")
        said.drop("model", f"it is a model of {backend!r}")
        _codex(said)
    _sandbox(said)
    said.rename("add_dir", "extra_dirs")
    _model(said)


def _codex(said: PflowStep) -> None:
    config = said.values.pop("config", None)
    if isinstance(config, dict):
        effort = config.pop("model_reasoning_effort", None)
        if effort is not None:
            said.values.setdefault("effort", _EFFORTS.get(effort, effort) if isinstance(effort, str) else effort)
    if config:
        said.tell("config", "left out: it is Codex's own configuration", kind="pflow_left_out")
    said.drop("profile", "it is Codex's own configuration")
    said.drop("approval_policy", "what is asked for is decided by `mode` and the policy")


def _sandbox(said: PflowStep) -> None:
    mode = said.values.get("sandbox")
    if not isinstance(mode, str) or templates.is_template(mode):
        return
    if mode in _SANDBOX_LEVELS:
        said.values["sandbox"] = _SANDBOX_LEVELS[mode]
    else:
        said.drop("sandbox", "a workflow's file cannot take the sandbox away")


def _llm(said: PflowStep) -> None:
    said.values.setdefault("cache", True)
    for key in ("temperature", "max_tokens", "model_options"):
        said.drop(key, "the agent program does not let it be set")
    effort = said.values.get("reasoning_effort")
    if effort == "none":
        said.drop("reasoning_effort", "how much a model thinks cannot be switched off here")
    elif isinstance(effort, str) and effort in _EFFORTS:
        said.values["reasoning_effort"] = _EFFORTS[effort]
        if effort == "minimal":
            said.tell("reasoning_effort", "`minimal` is `low` here")
    said.rename("reasoning_effort", "effort")
    said.rename("reasoning_max_tokens", "max_thinking_tokens")
    _images(said)
    _model(said)


def _images(said: PflowStep) -> None:
    images = said.values.get("images")
    if isinstance(images, str) and not templates.is_template(images):
        images = said.values["images"] = [images]
    for one in images if isinstance(images, list) else ():
        if isinstance(one, str) and one.startswith(("http://", "https://")):
            said.refuse("images", f"{one} is not fetched here; get it with an http step and its `save_to`")


def _model(said: PflowStep) -> None:
    model = said.values.get("model")
    if not isinstance(model, str) or ("provider" in said.values and said.values["provider"] != "claude-code"):
        return
    if model.lower().startswith("anthropic/"):
        said.values["model"] = model.partition("/")[2]
    elif _FOREIGN_MODEL.fullmatch(model):
        said.drop("model", f"{model} is not a model of Claude", _OTHER_MODEL)


def _http(said: PflowStep) -> None:
    said.rename("auth_token", "auth")
    method = said.values.get("method")
    if isinstance(method, str):
        said.values["method"] = method if templates.is_template(method) else method.upper()
    elif method is None and said.values.get("body"):
        said.values["method"] = "POST"
    said.values.setdefault("expect", ["2xx"])
    name = said.values.pop("api_key_header", None) or "X-API-Key"
    if "api_key" not in said.values:
        return
    headers = said.values.get("headers") or {}
    if isinstance(headers, dict) and isinstance(name, str):
        said.values["headers"] = {**headers, name: said.values.pop("api_key")}
        said.move(("api_key",), ("headers", name))
    else:
        said.refuse("api_key", "it cannot be added to headers that a template gives")


def _ends(said: PflowStep) -> None:
    said.rename("source_path", "source")
    said.rename("dest_path", "destination")


def _delete_file(said: PflowStep) -> None:
    inputs = said.values.get("inputs")
    if not isinstance(inputs, dict) or "confirm_delete" not in inputs:
        return
    confirmed = inputs["confirm_delete"]
    others = {key: value for key, value in inputs.items() if key != "confirm_delete"}
    said.values["inputs"] = others
    if not others:
        del said.values["inputs"]
    said.values.setdefault("when", confirmed)
    said.tell("inputs", "where `confirm_delete` is not true the step is skipped, and does not fail")


def _shell(said: PflowStep) -> None:
    strips = said.values.pop("strip_newline", True)
    if isinstance(strips, bool):
        said.values.setdefault("strip_newlines", "all" if strips else "none")
    else:
        said.refuse("strip_newline", "expected true or false")


def _code(said: PflowStep) -> None:
    said.values.pop("requires", None)  # only for readers, in pflow too


def _workflow(said: PflowStep) -> None:
    said.drop("max_depth", "at most 10 workflows can be inside each other")


_OF_TYPE: Mapping[str, tuple[Callable[[PflowStep], None], ...]] = {
    "agent": (_agent,),
    "claude-code": (_agent,),
    "llm": (_llm,),
    "http": (_http,),
    "copy-file": (_ends,),
    "move-file": (_ends,),
    "delete-file": (_delete_file,),
    "shell": (_shell,),
    "code": (_code,),
    "workflow": (_workflow,),
}
