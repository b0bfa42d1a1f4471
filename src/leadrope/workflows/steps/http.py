"""`http`: one request to a public host, its redirects judged like itself. Never logs or returns the token in `auth`.

A name is resolved once, every address that it has is judged, and the connection goes to one of those: a name cannot be
one thing when it is judged and another when it is used. Proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from leadrope.core import home as homes
from leadrope.core.tools import ToolCall
from leadrope.net.addresses import Resolver
from leadrope.net.resolver import ask_system
from leadrope.workflows import addresses, http_client, templates
from leadrope.workflows.known_secrets import KnownSecrets
from leadrope.workflows.steps.base import Caution, Config, Context, Done, Kind, StepFailed, as_mistake, brief

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]

DEFAULT_S, MOST_S = 30.0, 300.0
MIB = 1024 * 1024
DEFAULT_BYTES, MOST_BYTES = 5 * MIB, 50 * MIB
MOST_REDIRECTS = 5
_FOLLOWED = (301, 302, 303, 307, 308)
_SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-auth-token", "private-token"})
"""Their values are kept out of messages and outputs. With `cookie` they do not go to another origin."""
_ABOUT_BODY = frozenset({"content-type", "content-language", "content-location"})

_BOTH_BODIES = "body and form are both given"

Scalar = str | int | float | bool | None
Values = Scalar | list[Scalar]


class Http(Config, frozen=True, kw_only=True):
    url: Annotated[str, Meta(description="http:// or https://, without user and password.")]
    method: Annotated[Method, Meta(description="The method of the request.")] = "GET"
    headers: Annotated[dict[str, Scalar], Meta(description="Further headers.")] = msgspec.field(default_factory=dict)
    params: Annotated[dict[str, Values], Meta(description="Added to the url's query.")] = msgspec.field(
        default_factory=dict
    )
    body: Annotated[Any, Meta(description="A text is sent as it is, any other value as JSON.")] = None
    form: Annotated[dict[str, Values] | None, Meta(description="Sent as a form in place of a body.")] = None
    auth: Annotated[str, Meta(description="A bearer token. It appears in no log, message or output.")] = ""
    auth_env: Annotated[
        str,
        Meta(description="In place of `auth`: a variable that holds the token, of your forward_env."),
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
    """A configuration that was checked whole before anything was sent."""

    target: addresses.Target
    allowed: addresses.Allowed
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    expected: tuple[range, ...]
    secrets: KnownSecrets


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What cannot be meant, whoever is asked. Where a url leads is judged when it is used."""
    known = templates.settled(parameters)
    if parameters.get("body") is not None and parameters.get("form") is not None:
        yield "form", _BOTH_BODIES
    try:
        if isinstance(url := known.get("url"), str):
            addresses.read_url(url)
    except addresses.BadUrl as error:
        yield "url", f"{error}. {error.hint}"
    except addresses.Blocked:
        pass
    expect = known.get("expect")
    for word in expect if isinstance(expect, list) else ():
        try:
            _span(word)
        except StepFailed as failed:
            yield "expect", as_mistake(failed).removeprefix("expect: ")


async def run(config: Http, context: Context) -> Done:
    return await fetch(config, context)


async def fetch(
    config: Http, context: Context, *, resolve: Resolver = ask_system, tls: ssl.SSLContext | None = None
) -> Done:
    """`resolve` and `tls` are the outermost seams: who knows names, and whose certificates are trusted."""
    plan = _checked(_with_token(config, context) if config.auth_env else config)
    try:
        return await _Exchange(config, plan, context, resolve, tls).run()
    except StepFailed as failed:
        failed.message = plan.secrets.text(failed.message)
        failed.args = (failed.message,)
        raise


class _Exchange:
    """The request and its redirects, with one clock for all of them that stands still while a person is asked."""

    def __init__(
        self, config: Http, plan: _Plan, context: Context, resolve: Resolver, tls: ssl.SSLContext | None
    ) -> None:
        self._config = config
        self._plan = plan
        self._context = context
        self._resolve = resolve
        self._tls = tls
        self._left_s = config.timeout

    async def run(self) -> Done:
        request = http_client.Request(
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

    async def _permitted(self, request: http_client.Request, hop: int) -> http_client.Request:
        """As the policy, and a person where it asks for one, lets it be sent."""
        self._judge_name(request.target)
        told: dict[str, Any] = {"url": request.target.url, "method": request.method}
        if request.body is not None:
            told["body"] = request.body.decode("utf-8", "replace")
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
            headers=request.headers if target.origin == request.target.origin else _without_secrets(request.headers),
            body=request.body if body == told.get("body") else str(body).encode(),
        )

    def _judge_name(self, target: addresses.Target) -> None:
        try:
            addresses.judge_name(target, self._plan.allowed)
        except addresses.Blocked as blocked:
            raise _blocked(target, blocked) from None

    async def _timed(self, request: http_client.Request) -> tuple[Done, http_client.Request | None]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(max(self._left_s, 0.0)):
                return await self._hop(request)
        except TimeoutError:
            raise StepFailed(
                f"{request.method} {request.target.shown} was not done within {self._config.timeout:g} s",
                kind="timed_out",
                hint=f"Give the step a longer timeout (at most {MOST_S:g} s), or ask for less.",
                can_heal=True,
            ) from None
        except http_client.Failed as failed:
            raise StepFailed(
                f"{request.method} {request.target.shown} failed: {failed}",
                kind="connection_failed",
                hint="Check the address, and that the server runs; proxies of the environment are not used.",
                can_heal=True,
            ) from None
        except http_client.TooLarge:
            raise StepFailed(
                f"the answer of {request.target.shown} is larger than {self._config.max_bytes} bytes",
                kind="too_large",
                hint=f"Set max_bytes (at most {MOST_BYTES}), or ask for less.",
            ) from None
        finally:
            self._left_s -= loop.time() - began

    async def _hop(self, request: http_client.Request) -> tuple[Done, http_client.Request | None]:
        where = await self._addresses(request.target)
        async with http_client.exchange(request, where, tls=self._tls) as answer:
            location = answer.headers.get("location")
            if self._config.follow_redirects and answer.status in _FOLLOWED and location:
                return Done(), _followed(request, answer.status, location)
            content = await answer.read(self._config.max_bytes)
        return self._done(request.target, answer, content), None

    async def _addresses(self, target: addresses.Target) -> list[str]:
        found = [str(target.address)]
        if target.address is None:
            try:
                found = list(await self._resolve(target.host, target.port))
            except (OSError, UnicodeError) as error:
                told = getattr(error, "strerror", None) or error
                raise http_client.Failed(f"{target.host} cannot be resolved: {told}") from None
        try:
            return addresses.judge_addresses(target, found, self._plan.allowed)
        except addresses.Blocked as blocked:
            raise _blocked(target, blocked) from None

    def _done(self, target: addresses.Target, answer: http_client.Answer, content: bytes) -> Done:
        body = self._plan.secrets.text(_decoded(answer, content))
        warnings: tuple[Caution, ...] = ()
        value: Any = None
        if body.strip() and (answer.media_type == "application/json" or answer.media_type.endswith("+json")):
            try:
                value = msgspec.json.decode(body)
            except (msgspec.DecodeError, RecursionError) as error:
                told = f"{target.shown} says that it answers in JSON, and does not: {error}"
                warnings = (Caution(kind="bad_json", message=told),)
        outputs = {
            "status": answer.status,
            "headers": {name: self._plan.secrets.text(text) for name, text in answer.headers.items()},
            "body": body,
            "json": value,
            "url": self._plan.secrets.text(target.url),
        }
        if not any(answer.status in span for span in self._plan.expected):
            raise _refused(target, answer, outputs)
        return Done(outputs=outputs, warnings=warnings)


def _with_token(config: Http, context: Context) -> Http:
    """Only what the user lets out to every command: a file that somebody else wrote could send it anywhere."""
    name = config.auth_env
    if config.auth:
        raise _bad("auth and auth_env are both given", "Use one of them.")
    if name not in context.service.config.forward_env:
        raise _bad(f"auth_env: {name!r} is not in forward_env", f'Write forward_env = ["{name}"] in your config.toml.')
    token = {**homes.load_env(context.home), **context.environ}.get(name, "")
    if not token.strip():
        raise _bad(f"auth_env: {name} is not set", f"Set it in your environment, or in {context.home / '.env'}.")
    return msgspec.structs.replace(config, auth=token, auth_env="")


def _checked(config: Http) -> _Plan:
    if config.body is not None and config.form is not None:
        raise _bad(_BOTH_BODIES, "Use one of them.")
    target = _read(config.url)
    query = _encoded(config.params)
    if query:
        target = _read(f"{target.url}{'&' if '?' in target.path else '?'}{query}")
    try:
        allowed = addresses.read_allowed(config.allow_private)
    except addresses.BadUrl as error:
        raise _bad(str(error), error.hint) from None
    body, kind = _body(config)
    headers = _headers(config, kind)
    secret = [text for name, text in headers if name.lower() in _SECRET_HEADERS]
    return _Plan(
        target=target,
        allowed=allowed,
        headers=headers,
        body=body,
        expected=tuple(map(_span, config.expect)) or (range(200, 400),),
        secrets=KnownSecrets([*secret, *(text.rpartition(" ")[2] for text in secret)]),
    )


def _read(url: str) -> addresses.Target:
    try:
        return addresses.read_url(url)
    except addresses.BadUrl as error:
        raise _bad(str(error), error.hint) from None
    except addresses.Blocked as blocked:
        raise StepFailed(str(blocked), kind="blocked_address", hint=blocked.hint) from None


def _headers(config: Http, body_kind: str | None) -> tuple[tuple[str, str], ...]:
    found: dict[str, tuple[str, str]] = {}
    try:
        for name, value in config.headers.items():
            if value is not None:
                found[name.lower()] = http_client.check_header(name, _word(value))
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


def _body(config: Http) -> tuple[bytes | None, str | None]:
    if config.form is not None:
        return _encoded(config.form).encode("ascii"), "application/x-www-form-urlencoded"
    if config.body is None:
        return None, None
    if isinstance(config.body, str):
        return config.body.encode("utf-8", "replace"), "text/plain; charset=utf-8"
    return msgspec.json.encode(config.body), "application/json"


def _encoded(values: Mapping[str, Values]) -> str:
    pairs = [(name, one) for name, value in values.items() for one in (value if isinstance(value, list) else [value])]
    return urlencode([(name, _word(value)) for name, value in pairs if value is not None])


def _word(value: Scalar) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _span(word: int | str) -> range:
    text = str(word).strip().lower()
    first, dash, last = text.partition("-")
    if len(text) == 3 and text.endswith("xx") and text[0] in "12345":
        return range(int(text[0]) * 100, int(text[0]) * 100 + 100)
    bounds = (first.strip(), last.strip() if dash else first.strip())
    if not all(bound.isascii() and bound.isdigit() and 100 <= int(bound) <= 599 for bound in bounds):
        raise _bad(f"expect: {brief(text, 40)!r} is no status", 'Write 200, "200-299" or "2xx".')
    return range(int(bounds[0]), int(bounds[1]) + 1)


def _followed(request: http_client.Request, status: int, location: str) -> http_client.Request:
    """The request that a redirect asks for: 303, and by custom 301 and 302 of a POST, ask for a GET."""
    try:
        target = addresses.follow(request.target, location)
    except (addresses.BadUrl, addresses.Blocked) as error:
        is_blocked = isinstance(error, addresses.Blocked)
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
        headers = _without_secrets(headers)
    return http_client.Request(method=method, target=target, headers=headers, body=body)


def _without_secrets(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple(header for header in headers if header[0].lower() not in (*_SECRET_HEADERS, "cookie"))


def _decoded(answer: http_client.Answer, content: bytes) -> str:
    named = [word.strip() for word in answer.headers.get("content-type", "").split(";")[1:]]
    charset = next((word[8:].strip("\"' ") for word in named if word.lower().startswith("charset=")), "utf-8")
    try:
        return content.decode(charset, "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


def _bad(message: str, hint: str) -> StepFailed:
    return StepFailed(message, kind="bad_input", hint=hint)


def _blocked(target: addresses.Target, blocked: addresses.Blocked) -> StepFailed:
    return StepFailed(
        f"{target.shown} may not be requested: {blocked}",
        kind="blocked_address",
        hint=blocked.hint,
    )


def _refused(target: addresses.Target, answer: http_client.Answer, outputs: dict[str, Any]) -> StepFailed:
    told = brief(str(outputs["body"]))
    again = answer.headers.get("retry-after", "")
    hint = f"The server says: try again after {brief(again, 60)}{' s' if again.isdigit() else ''}." if again else None
    return StepFailed(
        f"{target.shown} answered with status {answer.status}{f': {told}' if told else ''}",
        kind="http_error",
        hint=hint or "Set expect if this status is no failure.",
        can_heal=answer.status in (408, 425, 429) or answer.status >= 500,
        outputs=outputs,
    )


KIND = Kind(
    name="http",
    summary="Sends one HTTP request and reads the answer.",
    config=Http,
    outputs={
        "status": {"type": "integer"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "body": {"type": "string"},
        "json": {},
        "url": {"type": "string"},
    },
    run=run,
    default_timeout_s=DEFAULT_S,
    ends_itself=True,
    secret=("auth",),
    mistakes=mistakes,
)
