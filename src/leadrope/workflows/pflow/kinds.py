"""Step types of a `.pflow.md`: they do the same work, with pflow's names for the outputs.

Each also accepts `inputs`: names that the templates of its other parameters may use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta, structs

from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed

Outputs = Mapping[str, Any]
_INPUTS = Annotated[dict[str, Any], Meta(description="Names for the templates of the other parameters.")]
_BOOLEAN: Outputs = {"type": "boolean"}
_TEXT: Outputs = {"type": "string"}
_PLAIN = ("code", "workflow")
"""Types that have `inputs` of their own, and the same output names."""


class _Variant(msgspec.Struct, frozen=True, kw_only=True):
    outputs: Outputs = {}
    """Additional outputs, as JSON Schemas."""
    names: Callable[[dict[str, Any], Any, float], dict[str, Any]] | None = None
    """Takes our outputs, the configuration and the duration in seconds; returns all outputs."""
    fields: tuple[tuple[str, Any, Any], ...] = ()
    """Additional parameters: name, type, default."""
    before: Callable[[Any], Any] | None = None
    """Converts the configuration with the additional parameters to that of our type."""


def _http(given: dict[str, Any], _config: Any, took_s: float) -> dict[str, Any]:
    value = given.get("json")
    if value is None:
        value = given.get("body_base64", given.get("body"))
    why = given.get(templates.ABSENT, {}).get("body_base64")  # the body was saved to a file
    return {
        **({"response": value} if why is None else {templates.ABSENT: {"response": why}, "path": given.get("path")}),
        "response_is_binary": "body_base64" in given,
        "status_code": given.get("status"),
        "response_headers": given.get("headers"),
        "response_time": round(took_s, 3),
        "url": given.get("url"),
    }


def _read_file(given: dict[str, Any], _config: Any, _took_s: float) -> dict[str, Any]:
    is_binary = "content_base64" in given
    content = given["content_base64" if is_binary else "content"]
    own = {name: value for name, value in given.items() if name not in ("content_base64", templates.ABSENT)}
    return {**own, "content": content, "content_is_binary": is_binary, "file_path": given.get("path")}


def _llm(given: dict[str, Any], config: Any, _took_s: float) -> dict[str, Any]:
    return {**given, "prompt": config.prompt}


def _write_config(config: Any) -> Any:
    encoding = "base64" if config.content_is_binary else config.encoding
    return structs.replace(config, encoding=encoding, mode="append" if config.append else config.mode)


def _shell_config(config: Any) -> Any:
    env = {name: str(value) if isinstance(value, bool) else value for name, value in config.env.items()}
    return structs.replace(config, binary_as="base64", env=env)


def _with(**more: Any) -> Callable[[dict[str, Any], Any, float], dict[str, Any]]:
    return lambda given, _config, _took_s: {**given, **more}


_VARIANTS: Mapping[str, _Variant] = {
    "http": _Variant(
        outputs={
            "response": {},
            "response_is_binary": _BOOLEAN,
            "status_code": {"type": "integer"},
            "response_headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "response_time": {"type": "number"},
            "path": _TEXT,
            "url": _TEXT,
        },
        names=_http,
    ),
    "mcp": _Variant(
        fields=(
            ("server", Annotated[str, Meta(description="A connection; otherwise `tool` begins with its name.")], ""),
        )
    ),
    "shell": _Variant(before=_shell_config),
    "llm": _Variant(outputs={"prompt": _TEXT}, names=_llm),
    "read-file": _Variant(outputs={"content_is_binary": _BOOLEAN, "file_path": _TEXT}, names=_read_file),
    "write-file": _Variant(
        outputs={"written": _BOOLEAN},
        names=_with(written=True),
        fields=(
            ("append", Annotated[bool, Meta(description="Add at the end of the file.")], False),
            ("content_is_binary", Annotated[bool, Meta(description="The content is base64.")], False),
        ),
        before=_write_config,
    ),
    "copy-file": _Variant(outputs={"copied": _BOOLEAN}, names=_with(copied=True)),
    "move-file": _Variant(outputs={"moved": _BOOLEAN}, names=_with(moved=True)),
}


@cache
def kind_of(name: str) -> Kind[Any]:
    """Returns a step type; KeyError for an unknown name."""
    from leadrope.workflows.steps import registry  # noqa: PLC0415  # it imports this module for the other dialect

    base = registry.kind_of(name)
    if name in _PLAIN or "inputs" in base.config.__struct_fields__:
        return base
    variant = _VARIANTS.get(name, _Variant())
    fields = [(key, kind, msgspec.field(default=default)) for key, kind, default in variant.fields]
    config = msgspec.defstruct(
        f"Pflow{base.config.__name__}",
        [*fields, ("inputs", _INPUTS, msgspec.field(default_factory=dict))],
        bases=(base.config,),
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
    )
    own = variant.outputs if name == "http" else {**base.outputs, **variant.outputs}
    return structs.replace(base, config=config, outputs=own, run=_run(base, variant), names_in="inputs")


def _run(base: Kind[Any], variant: _Variant) -> Any:
    async def run(config: StepConfig, context: StepContext) -> StepDone:
        began = time.monotonic()
        try:
            done = await base.run(variant.before(config) if variant.before else config, context)
        except StepFailed as failed:
            if variant.names is not None and failed.outputs:
                failed.outputs = variant.names(failed.outputs, config, time.monotonic() - began)
            raise
        if variant.names is None:
            return done
        return structs.replace(done, outputs=variant.names(done.outputs, config, time.monotonic() - began))

    return run
