"""`http`: one request to a public host; redirects are checked in the same way. Never logs or returns the token in
`auth`.

A name is resolved once, every address it has is checked, and the connection goes to one of these, so the name cannot
resolve differently between check and use. Proxies from the environment are not used.

Bodies are bytes. Output is text only if the bytes decode as text; otherwise it is base64, or a file of the workspace
(`save_to`). Characters are never replaced.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from leadrope.core import home as homes
from leadrope.core.tools import ToolCall
from leadrope.net import http_client, urls
from leadrope.net.addresses import Resolver
from leadrope.net.resolver import ask_system
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed, as_mistake, brief
from leadrope.workflows.tools import (
    addresses,
    file_calls,
    http_answers,
    http_bodies,
    http_uploads,
    media,
    workspace_files,
)
from leadrope.workflows.tools.http_bodies import Scalar, UploadPart, Values
from leadrope.workflows.tools.secret_values import spellings
from leadrope.workflows.tools.step_redactor import KnownSecrets

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]

DEFAULT_S, MOST_S = 30.0, 300.0
MIB = 1024 * 1024
DEFAULT_BYTES, MOST_BYTES = 5 * MIB, http_uploads.MOST_BYTES
MOST_REDIRECTS = 5
_FOLLOWED = (301, 302, 303, 307, 308)
_SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-auth-token", "private-token"})
"""Their values are kept out of messages and outputs. These and `cookie` are not sent to another origin."""
_ABOUT_BODY = frozenset({"content-type", "content-language", "content-location"})

_BODIES = ("body", "form", "body_base64", "body_file", "multipart")


class Http(StepConfig, frozen=True, kw_only=True):
    url: Annotated[str, Meta(description="http:// or https://, without user and password.")]
    method: Annotated[Method, Meta(description="The method of the request.")] = "GET"
    headers: Annotated[dict[str, Scalar], Meta(description="Further headers.")] = msgspec.field(default_factory=dict)
    params: Annotated[dict[str, Values], Meta(description="Added to the url's query.")] = msgspec.field(
        default_factory=dict
    )
    body: Annotated[Any, Meta(description="A text is sent as it is, any other value as JSON.")] = None
    form: Annotated[dict[str, Values] | None, Meta(description="Sent as a form in place of a body.")] = None
    body_base64: Annotated[str, Meta(description="In place of `body`: bytes, in base64.")] = ""
    body_file: Annotated[str, Meta(description="In place of `body`: a file of the workspace, sent as it is.")] = ""
    multipart: Annotated[
        dict[str, UploadPart | Scalar | list[UploadPart | Scalar]] | None,
        Meta(description="In place of `body`: a form with files, by the names of its fields."),
    ] = None
    auth: Annotated[str, Meta(description="A bearer token. It appears in no log, message or output.")] = ""
    auth_env: Annotated[
        str,
        Meta(description="In place of `auth`: a variable that holds the token, of your forward_env."),
    ] = ""
    save_to: Annotated[
        str, Meta(description="A file of the workspace that gets the answer's bytes; folders above it are made.")
    ] = ""
    max_bytes: Annotated[int, Meta(ge=1, le=MOST_BYTES, description="The longest answer that is read.")] = DEFAULT_BYTES
    follow_redirects: Annotated[bool, Meta(description="At most 5, each judged like the url itself.")] = True
    allow_private: Annotated[
        bool | str | list[str],
        Meta(description="Hosts, addresses or networks (10.0.0.0/8) that may be reached although they are not public."),
    ] = False
    timeout: Annotated[float, Meta(ge=1, le=MOST_S, description="Seconds for the whole, redirects too.")] = DEFAULT_S
    expect: Annotated[
        list[int | str], Meta(description='Statuses that are a success: 200, "200-299", "2xx". Default: 200 to 399.')
    ] = msgspec.field(default_factory=list)


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that was validated completely before anything is sent."""

    target: urls.Target
    allowed: addresses.Allowed
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    expected: tuple[range, ...]
    secrets: KnownSecrets
    saved_at: workspace_files.WorkspaceFiles | None = None
    """Where the answer is saved; writing there is already permitted."""


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield mistakes that do not depend on approvals. The host of a URL is resolved and checked on use."""
    known = templates.settled(parameters)
    bodies = [name for name in _BODIES if parameters.get(name) is not None]
    if len(bodies) > 1:
        yield bodies[-1], http_bodies.together(bodies)
    try:
        if isinstance(text := known.get("body_base64"), str):
            media.from_base64(text, "body_base64")
    except StepFailed as failed:
        yield "body_base64", as_mistake(failed).removeprefix("body_base64: ")
    yield from _url_mistakes(parameters, known)
    expect = known.get("expect")
    for word in expect if isinstance(expect, list) else ():
        try:
            _span(word)
        except StepFailed as failed:
            yield "expect", as_mistake(failed).removeprefix("expect: ")


def _url_mistakes(parameters: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of a URL that the step would reject: its form, or its host if that is literal."""
    given = parameters.get("url")
    url = known.get("url", addresses.origin_of(given) if isinstance(given, str) else None)
    if not isinstance(url, str):
        return
    try:
        target = urls.read_url(url)
        if "allow_private" in known or "allow_private" not in parameters:
            addresses.judge_name(target, addresses.read_allowed(known.get("allow_private", False)))
    except urls.BadUrl as error:
        yield "url", f"{error}. {error.hint}"
    except urls.Blocked as blocked:
        yield "url", f"it may not be requested: {blocked}. {blocked.hint}"


async def run(config: Http, context: StepContext) -> StepDone:
    return await fetch(config, context)


async def fetch(
    config: Http, context: StepContext, *, resolve: Resolver = ask_system, tls: ssl.SSLContext | None = None
) -> StepDone:
    """Run the step. `resolve` and `tls` can be replaced: the name resolution, and the trusted certificates."""
    plan = await _planned(_with_token(config, context) if config.auth_env else config, context)
    try:
        return await _Exchange(config, plan, context, resolve, tls).run()
    except StepFailed as failed:
        failed.message = plan.secrets.text(failed.message)
        failed.args = (failed.message,)
        raise


class _Exchange:
    """The request and its redirects, under one time-out that stops while a person is asked."""

    def __init__(
        self, config: Http, plan: _Plan, context: StepContext, resolve: Resolver, tls: ssl.SSLContext | None
    ) -> None:
        self._config = config
        self._plan = plan
        self._context = context
        self._resolve = resolve
        self._tls = tls
        self._left_s = config.timeout

    async def run(self) -> StepDone:
        request = http_client.OutgoingRequest(
            method=self._config.method, target=self._plan.target, headers=self._plan.headers, body=self._plan.body
        )
        for hop in range(MOST_REDIRECTS + 1):
            request = await self._permitted(request, hop)
            self._context.say(f"{request.method} {request.target.shown}")
            answer, following = await self._timed(request)
            if following is None:
                return answer
            request = following
        raise StepFailed(
            f"{self._plan.target.shown} redirected more than {MOST_REDIRECTS} times, at last to {request.target.shown}",
            kind="http_error",
            hint="Request the final address itself.",
        )

    async def _permitted(self, request: http_client.OutgoingRequest, hop: int) -> http_client.OutgoingRequest:
        """Return the request as permitted by the policy, and by a person where the policy asks for one."""
        self._judge_name(request.target)
        told: dict[str, Any] = {"url": request.target.url, "method": request.method}
        if request.body is not None:
            kind = next((value for name, value in request.headers if name.lower() == "content-type"), "")
            told["body"] = http_bodies.described(request.body, kind)
        call = await self._context.permit(ToolCall(id=f"{self._context.key}:{hop}", name="WebFetch", input=told))
        if call.input == told:
            return request
        target = _read(str(call.input.get("url", request.target.url)))
        self._judge_name(target)
        body = call.input.get("body")
        return msgspec.structs.replace(
            request,
            target=target,
            method=str(call.input.get("method", request.method)),
            headers=request.headers if target.origin == request.target.origin else self._for_others(request.headers),
            body=request.body if body == told.get("body") else str(body).encode(),
        )

    def _judge_name(self, target: urls.Target) -> None:
        rehearsal = self._context.rehearsal
        if rehearsal is not None and not target.is_loopback:
            raise rehearsal.refuse_network(f"{self._config.method} {target.shown}", self._context.key)
        try:
            addresses.judge_name(target, self._plan.allowed)
        except urls.Blocked as blocked:
            raise _blocked(target, blocked) from None

    async def _timed(self, request: http_client.OutgoingRequest) -> tuple[StepDone, http_client.OutgoingRequest | None]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(max(self._left_s, 0.0)):
                return await self._hop(request)
        except TimeoutError:
            raise StepFailed(
                f"{request.method} {request.target.shown} did not finish within {self._config.timeout:g} s",
                kind="timed_out",
                hint=f"Give the step a longer timeout (at most {MOST_S:g} s), or ask for less.",
                can_heal=True,
            ) from None
        except http_client.HttpFailed as failed:
            raise StepFailed(
                f"{request.method} {request.target.shown} failed: {failed}",
                kind="connection_failed",
                hint="Check the address, and that the server runs; proxies of the environment are not used.",
                can_heal=True,
            ) from None
        except http_client.BodyTooLarge:
            raise StepFailed(
                f"the answer of {request.target.shown} is larger than {self._config.max_bytes} bytes",
                kind="too_large",
                hint=f"Set max_bytes (at most {MOST_BYTES}), or ask for less.",
            ) from None
        finally:
            self._left_s -= loop.time() - began

    async def _hop(self, request: http_client.OutgoingRequest) -> tuple[StepDone, http_client.OutgoingRequest | None]:
        where = await self._addresses(request.target)
        async with http_client.exchange(request, addresses=where, tls=self._tls) as answer:
            location = answer.headers.get("location")
            if self._config.follow_redirects and answer.status in _FOLLOWED and location:
                return StepDone(), self._followed(request, answer.status, location)
            content = await answer.read(self._config.max_bytes)
        return await self._done(request.target, answer, content), None

    def _followed(
        self, request: http_client.OutgoingRequest, status: int, location: str
    ) -> http_client.OutgoingRequest:
        """Build the request for a redirect: 303 asks for a GET, and so by convention do 301 and 302 after a POST."""
        try:
            target = urls.follow(request.target, location)
        except (urls.BadUrl, urls.Blocked) as error:
            is_blocked = isinstance(error, urls.Blocked)
            raise StepFailed(
                f"{request.target.shown} redirects to an address that cannot be followed: {error}",
                kind="blocked_address" if is_blocked else "http_error",
                hint="Request the final address itself, or set follow_redirects: false.",
            ) from None
        headers, method, body = request.headers, request.method, request.body
        if (status == 303 and method not in ("GET", "HEAD")) or (status in (301, 302) and method == "POST"):
            method, body = "GET", None
            headers = tuple(header for header in headers if header[0].lower() not in _ABOUT_BODY)
        if target.origin != request.target.origin:
            headers = self._for_others(headers)
            if body is not None and self._plan.secrets.data(body) != body:
                raise StepFailed(
                    f"{request.target.shown} redirects to {target.shown}, and a secret in the body would be sent there",
                    kind="blocked_address",
                    hint="Request the final address itself.",
                )
        return http_client.OutgoingRequest(method=method, target=target, headers=headers, body=body)

    def _for_others(self, headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return the headers without those meant for the first origin only."""
        secrets = self._plan.secrets
        return tuple(
            (name, text)
            for name, text in headers
            if name.lower() not in (*_SECRET_HEADERS, "cookie") and secrets.text(text) == text
        )

    async def _addresses(self, target: urls.Target) -> list[str]:
        found = [str(target.address)]
        if target.address is None:
            try:
                found = list(await self._resolve(target.host, target.port))
            except (OSError, UnicodeError) as error:
                told = getattr(error, "strerror", None) or error
                raise http_client.HttpFailed(f"{target.host} cannot be resolved: {told}") from None
        try:
            return addresses.judge_addresses(target, found, self._plan.allowed)
        except urls.Blocked as blocked:
            raise _blocked(target, blocked) from None

    async def _done(self, target: urls.Target, answer: http_client.HttpAnswer, content: bytes) -> StepDone:
        shown = http_answers.Shown(target=target, answer=answer, content=content, secrets=self._plan.secrets)
        if not any(answer.status in span for span in self._plan.expected):
            raise shown.refused()
        if self._plan.saved_at is None:
            return shown.done()
        await self._save(self._plan.saved_at, shown.clean)
        return shown.saved(self._plan.saved_at.relative)

    async def _save(self, place: workspace_files.WorkspaceFiles, content: bytes) -> None:
        limit = self._context.commands.rules.max_file_size
        if limit is not None and len(content) > limit:
            raise StepFailed(
                f"the answer has {len(content):,} bytes, and the policy lets a file have {limit:,} (max_file_size)",
                kind="denied",
            )
        self._context.say(f"saves {place.relative}")
        await asyncio.to_thread(workspace_files.write, place, content, "overwrite")


def _with_token(config: Http, context: StepContext) -> Http:
    """Add the token. Only variables the user allows for every command: a stranger's file could send it anywhere."""
    name = config.auth_env
    if config.auth:
        raise _bad("auth and auth_env are both given", "Use one of them.")
    if name not in context.service.config.forward_env:
        raise _bad(f"auth_env: {name!r} is not in forward_env", f'Write forward_env = ["{name}"] in your config.toml.')
    token = {**homes.load_env(context.home), **context.environ}.get(name, "")
    if not token.strip():
        raise _bad(f"auth_env: {name} is not set", f"Set it in your environment, or in {context.home / '.env'}.")
    return msgspec.structs.replace(config, auth=token, auth_env="")


async def _planned(config: Http, context: StepContext) -> _Plan:
    """Do everything that can fail or needs approval before the request is sent."""
    bodies = [name for name in _BODIES if getattr(config, name) not in (None, "")]
    if len(bodies) > 1:
        raise _bad(http_bodies.together(bodies), "Use one of them.")
    target = _read(config.url)
    query = http_bodies.encoded(config.params)
    if query:
        target = _read(f"{target.url}{'&' if '?' in target.path else '?'}{query}")
    try:
        allowed = addresses.read_allowed(config.allow_private)
    except urls.BadUrl as error:
        raise _bad(str(error), error.hint) from None
    expected = tuple(map(_span, config.expect)) or (range(200, 400),)
    saved_at = workspace_files.find(context.workspace, config.save_to, parameter="save_to") if config.save_to else None
    body = await http_uploads.body_of(
        context,
        body=config.body,
        form=config.form,
        in_base64=config.body_base64,
        file=config.body_file,
        multipart=config.multipart,
    )
    headers = _headers(config, body.media_type if body is not None else None)
    secret = [text for name, text in headers if name.lower() in _SECRET_HEADERS]
    if saved_at is not None:
        # Approved before anything is sent: a step that is parked for the answer must not send the request twice.
        saved_at, _ = await file_calls.may_write(context, saved_at, "", parameters=("save_to",))
    return _Plan(
        target=target,
        allowed=allowed,
        headers=headers,
        body=body.data if body is not None else None,
        expected=expected,
        secrets=KnownSecrets(
            [*secret, *(text.rpartition(" ")[2] for text in secret), *spellings(context.used_secrets)]
        ),
        saved_at=saved_at,
    )


def _read(url: str) -> urls.Target:
    try:
        return urls.read_url(url)
    except urls.BadUrl as error:
        raise _bad(str(error), error.hint) from None
    except urls.Blocked as blocked:
        raise StepFailed(str(blocked), kind="blocked_address", hint=blocked.hint) from None


def _headers(config: Http, body_kind: str | None) -> tuple[tuple[str, str], ...]:
    found: dict[str, tuple[str, str]] = {}
    try:
        for name, value in config.headers.items():
            if value is not None:
                found[name.lower()] = http_client.check_header(name, http_bodies.word(value))
        if config.auth:
            if "authorization" in found:
                raise _bad("auth and a header Authorization are both given", "Use one of them.")
            token = config.auth.strip().removeprefix("Bearer ").strip()
            found["authorization"] = http_client.check_header("Authorization", f"Bearer {token}")
    except http_client.BadHeader as error:
        raise _bad(f"headers: {error}", "A header is one line of plain text.") from None
    if body_kind is not None:
        found.setdefault("content-type", ("Content-Type", body_kind))
    return tuple(found.values())


def _span(word: int | str) -> range:
    text = str(word).strip().lower()
    first, dash, last = text.partition("-")
    if len(text) == 3 and text.endswith("xx") and text[0] in "12345":
        return range(int(text[0]) * 100, int(text[0]) * 100 + 100)
    bounds = (first.strip(), last.strip() if dash else first.strip())
    if not all(bound.isascii() and bound.isdigit() and 100 <= int(bound) <= 599 for bound in bounds):
        raise _bad(f"expect: {brief(text, 40)!r} is not a status", 'Write 200, "200-299" or "2xx".')
    return range(int(bounds[0]), int(bounds[1]) + 1)


def _bad(message: str, hint: str) -> StepFailed:
    return StepFailed(message, kind="bad_input", hint=hint)


def _blocked(target: urls.Target, blocked: urls.Blocked) -> StepFailed:
    return StepFailed(
        f"{target.shown} may not be requested: {blocked}",
        kind="blocked_address",
        hint=blocked.hint,
    )


KIND = Kind(
    name="http",
    summary="Sends one HTTP request and reads the answer.",
    config=Http,
    outputs={
        "status": {"type": "integer"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "url": {"type": "string"},
        "media_type": {"type": "string"},
        "size": {"type": "integer"},
        "body": {"type": "string"},
        "body_base64": {"type": "string"},
        "json": {},
        "path": {"type": "string"},
    },
    run=run,
    opens=("body",),
    default_timeout_s=DEFAULT_S,
    ends_itself=True,
    secret=("auth",),
    secret_references=("url", "headers", "params", "auth", *_BODIES),
    mistakes=mistakes,
)
