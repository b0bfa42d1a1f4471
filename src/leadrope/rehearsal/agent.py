"""A scripted agent: a process that speaks the agent's protocol on stdin and stdout, byte for byte as scripted.

It replaces the `claude` binary, so that framing, signals, the gate and the ending of children are tested with a real
process. It and its two parts, `agent_bytes` and `agent_children`, import only the standard library: it is started for
every test, and must be up in a few hundredths of a second. `executable` checks the scripts beforehand.
"""

# ruff: noqa: PTH109, PTH110, PTH123  # importing pathlib would cost a third of the start-up time

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

# By path and not by name: an executable has this folder as a package of its own, without the rest of leadrope.
from .agent_bytes import NO_SESSION, PIECE, InputClosed, Stdin, fail, flood, verbatim, write_all
from .agent_children import spawn

_USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 10}


class ScriptedAgent:
    def __init__(self, script: dict[str, Any], argv: list[str]) -> None:
        self._script = script
        self._stdin = Stdin(script.get("stdin_file"))
        self._session = _option(argv, "--session-id") or _option(argv, "--resume") or NO_SESSION
        self._model = _option(argv, "--model") or "claude-sonnet-4-5"
        self._mode = _option(argv, "--permission-mode") or "default"
        self._version = script.get("version", "2.1.325").split(" ")[0]
        self._callback: str | None = None
        self._count = 0
        self._said = ""
        self._denials: list[dict[str, Any]] = []
        self._floods: dict[int, list[bytes]] = {}

    def play(self) -> None:
        steps = self._script["steps"]
        for step in steps:
            if "flood" in step:
                self._floods[id(step["flood"])] = list(flood(step["flood"]))
        try:
            self.steps(steps)
        except InputClosed:
            os._exit(self._script.get("exit_when_input_closes", 0))

    def steps(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            ((name, value),) = step.items()
            getattr(self, f"do_{name}")(value)

    # -- exact bytes ---------------------------------------------------------------------------------------------

    def do_line(self, value: Any) -> None:
        write_all(1, verbatim(value) + b"\n")

    def do_lines(self, values: list[Any]) -> None:
        write_all(1, b"".join(verbatim(value) + b"\n" for value in values))

    def do_raw(self, value: Any) -> None:
        write_all(1, verbatim(value))

    def do_stderr(self, value: Any) -> None:
        write_all(2, verbatim(value))

    def do_flood(self, value: dict[str, Any]) -> None:
        for block in self._floods.get(id(value)) or flood(value):
            write_all(1, block)

    def do_play(self, value: dict[str, Any]) -> None:
        with open(value["file"], "rb") as recording:
            if not value.get("interactive"):
                while data := recording.read(PIECE):
                    write_all(1, data)
                return
            for line in recording:
                self._play_line(line)

    def _play_line(self, line: bytes) -> None:
        """Plays a recorded line among live ones: uses the ids chosen by the supervisor and waits for its answers."""
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        kind = message.get("type") if isinstance(message, dict) else None
        if message is not None and kind == "control_response":
            wanted = self._stdin.next(lambda sent: sent.get("type") == "control_request")
            self._remember_callback(wanted)
            message["response"]["request_id"] = wanted["request_id"]
            self.do_line(message)
        elif message is not None and kind == "control_request":
            if message["request"].get("subtype") == "hook_callback" and self._callback is not None:
                message["request"]["callback_id"] = self._callback
            self.do_line(message)
            self._answer_to(message["request_id"])
        else:
            write_all(1, line)

    # -- the conversation ----------------------------------------------------------------------------------------

    def do_initialize(self, value: Any) -> None:
        spec = value if isinstance(value, dict) else {}
        request = self._stdin.next(lambda sent: _is_control(sent, "initialize"))
        self._remember_callback(request)
        if "error" in spec:
            response = {"subtype": "error", "request_id": request["request_id"], "error": spec["error"]}
        else:
            info: dict[str, Any] = {
                "commands": [],
                "models": [],
                "account": {},
                "pid": os.getpid(),
                "claude_code_version": self._version,
                "current_permission_mode": self._mode,
            }
            # Older versions do not know these keys at all, so `false` leaves them out.
            info.update(
                {
                    name: True
                    for name in ("hooks_applied", "hook_on_failure_supported")
                    if spec.get(name, True) is not False
                }
            )
            info.update(spec.get("answer", {}))
            response = {"subtype": "success", "request_id": request["request_id"], "response": info}
        self.do_line({"type": "control_response", "response": response})

    def do_await_user(self, value: Any) -> None:
        self._stdin.next(lambda sent: sent.get("type") == "user")

    def do_await_control(self, subtype: str) -> None:
        request = self._stdin.next(lambda sent: _is_control(sent, subtype))
        response = {"subtype": "success", "request_id": request["request_id"], "response": {}}
        self.do_line({"type": "control_response", "response": response})

    def do_await_eof(self, value: Any) -> None:
        self._stdin.until_closed()

    def do_await_file(self, path: str) -> None:
        import time  # noqa: PLC0415  # only here

        while not os.path.exists(path):
            time.sleep(0.01)

    def do_init(self, value: Any) -> None:
        line = {
            "type": "system",
            "subtype": "init",
            "cwd": os.getcwd(),
            "session_id": self._session,
            "tools": ["Task", "Bash", "Edit", "Read", "Write"],
            "mcp_servers": [],
            "model": self._model,
            "permissionMode": self._mode,
            "apiKeySource": "ANTHROPIC_API_KEY" if os.environ.get("ANTHROPIC_API_KEY") else "none",
            "claude_code_version": self._version,
            "uuid": self._uuid(),
        }
        self.do_line({**line, **_fields(value)})

    def do_text(self, text: str) -> None:
        self._said = text
        self._assistant({"type": "text", "text": text})

    def do_thinking(self, text: str) -> None:
        self._assistant({"type": "thinking", "thinking": text, "signature": "cmVoZWFyc2Fs"})

    def do_tool_use(self, value: dict[str, Any]) -> None:
        block = {"type": "tool_use", "id": value["id"], "name": value["tool"], "input": value.get("input", {})}
        self._assistant(block)

    def do_tool_result(self, value: dict[str, Any]) -> None:
        self._tool_result(value["id"], value.get("text", ""), value.get("is_error", False), value.get("meta"))

    def do_result(self, value: Any) -> None:
        line = {
            "subtype": "success",
            "is_error": False,
            "result": self._said,
            "session_id": self._session,
            "num_turns": 1,
            "duration_ms": 1,
            "duration_api_ms": 1,
            "total_cost_usd": 0.0006,
            "usage": _USAGE,
            "modelUsage": {},
            "permission_denials": self._denials,
            "stop_reason": "end_turn",
            "terminal_reason": "completed",
            "uuid": self._uuid(),
            # Not first, as in the real agent: a reader that looks only at the first key is wrong.
            "type": "result",
        }
        self.do_line({**line, **_fields(value)})

    # -- the gate ------------------------------------------------------------------------------------------------

    def do_hook(self, value: dict[str, Any]) -> None:
        request_id = self._send_hook(value)
        if value.get("wait", True):
            verdict, _ = _hook_verdict(self._answer_to(request_id))
            self.steps(value.get("if_allowed" if verdict == "allow" else "if_denied", []))

    def do_ask(self, value: dict[str, Any]) -> None:
        verdict, _ = self._ask(value)
        self.steps(value.get("if_allowed" if verdict == "allow" else "if_denied", []))

    def do_call(self, value: dict[str, Any]) -> None:
        self.do_calls([value])

    def do_calls(self, values: list[dict[str, Any]]) -> None:
        """Plays the tool calls of one message: announces all, asks the gate for all, then runs or skips each."""
        for value in values:
            self.do_tool_use(value)
        asked = [self._send_hook(value) if value.get("gate", True) else None for value in values]
        for value, request_id in zip(values, asked, strict=True):
            verdict, reason = ("allow", "") if request_id is None else _hook_verdict(self._answer_to(request_id))
            if verdict == "ask":
                verdict, reason = self._ask(value)
            if verdict == "allow":
                if "touch" in value:
                    self.do_touch(value["touch"])
                self._tool_result(value["id"], value.get("result", ""), value.get("is_error", False), None)
                continue
            self._denials.append(
                {"tool_name": value["tool"], "tool_use_id": value["id"], "tool_input": value.get("input", {})}
            )
            meta = {
                "id": value["id"],
                "non_execution_kind": "permission-rule",
                "permission_decision": {"decision": "reject", "source": "hook", "reason_type": "hook"},
            }
            self._tool_result(value["id"], f"PreToolUse:{value['tool']} hook error: {reason}", True, [meta])

    def _send_hook(self, value: dict[str, Any]) -> str:
        request_id = value.get("request_id") or self._uuid()
        event = {
            "session_id": self._session,
            "cwd": os.getcwd(),
            "permission_mode": self._mode,
            "hook_event_name": "PreToolUse",
            "tool_name": value["tool"],
            "tool_input": value.get("input", {}),
            "tool_use_id": value["id"],
        }
        if "agent_id" in value:
            event["agent_id"] = value["agent_id"]
        request = {
            "subtype": "hook_callback",
            "callback_id": self._callback or "no-callback-was-registered",
            "input": event,
            "tool_use_id": value["id"],
        }
        self.do_line({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    def _ask(self, value: dict[str, Any]) -> tuple[str, str]:
        request_id = value.get("ask_request_id") or self._uuid()
        request = {
            "subtype": "can_use_tool",
            "tool_name": value["tool"],
            "input": value.get("input", {}),
            "tool_use_id": value["id"],
            "permission_suggestions": [],
        }
        self.do_line({"type": "control_request", "request_id": request_id, "request": request})
        response = self._answer_to(request_id)
        answer = response.get("response") or {}
        verdict = answer.get("behavior") if response.get("subtype") == "success" else "deny"
        return ("allow" if verdict == "allow" else "deny"), str(answer.get("message", ""))

    def _answer_to(self, request_id: str) -> dict[str, Any]:
        found = self._stdin.next(
            lambda sent: (
                sent.get("type") == "control_response" and sent.get("response", {}).get("request_id") == request_id
            )
        )
        response: dict[str, Any] = found["response"]
        return response

    def _remember_callback(self, request: dict[str, Any]) -> None:
        hooks = (request["request"].get("hooks") or {}).get("PreToolUse") or []
        ids = [name for hook in hooks for name in hook.get("hookCallbackIds", [])]
        self._callback = ids[0] if ids else self._callback

    # -- misbehaviour --------------------------------------------------------------------------------------------

    def do_exit(self, code: int) -> None:
        os._exit(code)

    def do_die(self, number: int) -> None:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pause()

    def do_ignore_sigterm(self, value: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def do_hang(self, value: Any) -> None:
        while True:
            signal.pause()

    def do_pause_ms(self, value: float) -> None:
        import time  # noqa: PLC0415  # only here

        time.sleep(value / 1000)

    def do_close_stdout(self, value: Any) -> None:
        os.close(1)

    def do_close_stderr(self, value: Any) -> None:
        os.close(2)

    def do_touch(self, path: str) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))

    def do_repeat(self, value: dict[str, Any]) -> None:
        for _ in range(value["times"]):
            self.steps(value["steps"])

    def do_spawn(self, value: dict[str, Any]) -> None:
        for _ in range(value.get("count", 1)):
            spawn(value)

    # -- shapes --------------------------------------------------------------------------------------------------

    def _assistant(self, block: dict[str, Any]) -> None:
        message = {
            "id": f"msg_agent_{self._next():04}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**_USAGE, "output_tokens": 1},
        }
        self.do_line(
            {
                "type": "assistant",
                "message": message,
                "parent_tool_use_id": None,
                "session_id": self._session,
                "uuid": self._uuid(),
            }
        )

    def _tool_result(self, tool_use_id: str, text: str, is_error: bool, meta: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": text, "is_error": is_error}
        line = {
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "parent_tool_use_id": None,
            "session_id": self._session,
            "uuid": self._uuid(),
        }
        self.do_line({**line, "tool_result_meta": meta} if meta is not None else line)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _uuid(self) -> str:
        return f"00000000-0000-4000-8000-{self._next():012}"


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_control(message: dict[str, Any], subtype: str) -> bool:
    return message.get("type") == "control_request" and message.get("request", {}).get("subtype") == subtype


def _hook_verdict(response: dict[str, Any]) -> tuple[str, str]:
    """Reads a hook's verdict; fails closed, as the real agent does with onFailure block."""
    answer = response.get("response") if response.get("subtype") == "success" else None
    output = answer.get("hookSpecificOutput") if isinstance(answer, dict) else None
    if not isinstance(output, dict) or output.get("permissionDecision") not in ("allow", "deny", "ask"):
        return "deny", "the hook's answer was an error or not understood"
    return output["permissionDecision"], str(output.get("permissionDecisionReason", ""))


def _option(argv: list[str], name: str) -> str | None:
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(name + "="):
            return word[len(name) + 1 :]
    return None


def run(script: dict[str, Any], argv: list[str]) -> None:
    """Plays the agent: answers `--version` and other short commands, otherwise plays the steps."""
    answers = {
        "--version": {"stdout": script.get("version", "2.1.325 (Claude Code)") + "\n"},
        **script.get("answers", {}),
    }
    for words, answer in answers.items():
        wanted = words.split(" ")
        if argv[: len(wanted)] == wanted:
            write_all(1, answer.get("stdout", "").encode())
            write_all(2, answer.get("stderr", "").encode())
            os._exit(answer.get("exit", 0))
    if "start_file" in script:
        start = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid()}
        with open(script["start_file"], "a", encoding="utf-8") as file:
            file.write(json.dumps(start) + "\n")
    try:
        ScriptedAgent(script, argv).play()
    except BrokenPipeError:
        os._exit(1)  # the supervisor stopped reading; nobody can be told
    # Skips the interpreter's own exit, which would flush and close what the script wanted left alone.
    os._exit(0)


def main(argv: list[str]) -> None:
    """Runs `python -m leadrope.rehearsal.agent SCRIPT ARGS...`, where the script is YAML or JSON."""
    if not argv:
        fail("usage: python -m leadrope.rehearsal.agent SCRIPT ARGS...")
    from pathlib import Path  # noqa: PLC0415  # not needed by the executables that write_executable makes

    from leadrope.rehearsal.executable import load_agent  # noqa: PLC0415  # the same

    run(load_agent(Path(argv[0])), argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
