"""What a run's events say was used, sorted by attempt, model and agent. Pure: it is told, and adds up."""

from __future__ import annotations

from typing import Any

from leadrope.core import events
from leadrope.core.cost.usage import (
    AttemptUsage,
    CostLabel,
    CostSource,
    LlmUsage,
    ModelShare,
    Replaced,
    Totals,
    Usage,
    sum_label,
)

MAIN = "main"
OTHER = "other"


class _Piece:
    """A part of a run that stands or is replaced as a whole."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd = 0.0
        self.source: CostSource = "cli"
        self.duration_ms = 0
        self.steps = 0
        self.model = ""
        self.session_id: str | None = None

    def __bool__(self) -> bool:
        return bool(self.usage.total_tokens or self.cost_usd or self.steps)

    def add(self, other: _Piece) -> None:
        self.usage += other.usage
        self.cost_usd += other.cost_usd
        self.source = "computed" if "computed" in (self.source, other.source) else "cli"
        self.duration_ms += other.duration_ms
        self.steps += other.steps
        self.model = other.model or self.model
        self.session_id = other.session_id or self.session_id

    def fields(self) -> dict[str, Any]:
        return {
            **_tokens(self.usage),
            "cost_usd": self.cost_usd,
            "cost_source": self.source,
            "duration_ms": self.duration_ms,
            "num_turns": self.steps,
        }


class Spending:
    def __init__(self) -> None:
        self._untold: dict[str, events.UsageUpdated] = {}
        """Messages whose turn has not ended; the end of a turn tells the whole."""
        self._standing = _Piece()
        self._turn = _Piece()
        """The last turn: a corrective one would replace it."""
        self._retries: list[tuple[Replaced, _Piece]] = []
        self._models: dict[str, ModelShare] = {}
        self._agents: dict[str, Usage] = {}
        self._estimated_requests = 0
        self._estimated_usd = 0.0
        self._told_usd = 0.0
        self._metered_usd = 0.0
        self._since: float | None = None
        self._label: CostLabel = "estimate"
        self._label_now: CostLabel = "estimate"
        """Of the credential that pays now; `_label` is that of the whole run."""
        self._model = ""
        self._session_id: str | None = None

    # -- being told ---------------------------------------------------------------------------------------------------

    def session_started(self, event: events.SessionStarted) -> None:
        self._model = event.model
        self._session_id = event.session_id
        if event.credential is not None:
            self._label_now = label_of(event.credential)
            self._label = sum_label([(self._all().usage.total_tokens, self._label), (1, self._label_now)])

    def message(self, event: events.UsageUpdated) -> None:
        self._untold[event.message_id] = event

    def estimated(self, event: events.UsageEstimated) -> None:
        """Not among the tokens, which are those that were reported. Its cost comes with the meter's sum."""
        self._estimated_requests += 1
        self._estimated_usd += event.cost_usd

    def turn_ended(self, event: events.TurnEnded, time: float) -> None:
        piece = self._piece(event.usage, event.models, event.cost_usd)
        piece.cost_usd, piece.steps = event.cost_usd, event.steps
        piece.duration_ms = event.duration_ms
        self._told_usd += event.cost_usd
        self._since = time
        if not event.background:
            self._standing.add(self._turn)
            self._turn = _Piece()
        self._turn.add(piece)

    def replaced(self) -> None:
        """The last turn's answer does not count: a corrective turn follows."""
        self._retries.append(("correction", self._turn))
        self._turn = _Piece()

    def next_attempt(self, time: float) -> None:
        """The agent is started again: what it has used until now is superseded as a whole."""
        self._cut_off(time)
        self._standing.add(self._turn)
        if self._standing:
            self._retries.append(("restart", self._standing))
        self._standing, self._turn = _Piece(), _Piece()
        self._since = time

    def began(self, time: float) -> None:
        self._since = time

    def exited(self, event: events.AgentExited, time: float) -> None:
        self._cut_off(time)
        self._metered_usd = max(self._metered_usd, event.spent_usd)
        counted = sum(piece.cost_usd for piece in (*self._replaced(), self._standing, self._turn))
        missing = max(self._told_usd, self._metered_usd) - counted
        if missing > 1e-9:
            # A turn that was cut off tells no cost of its own, and the agent may know fewer requests than the broker.
            self._turn.cost_usd += missing
            self._turn.source = "computed"

    def _cut_off(self, time: float) -> None:
        """Messages of a turn that will not end."""
        if not self._untold:
            return
        piece = self._piece(Usage(), {}, 0.0)
        if self._since is not None:
            piece.duration_ms = max(0, round((time - self._since) * 1000))
        self._standing.add(self._turn)
        self._turn = piece

    def _piece(self, told: Usage, models: dict[str, ModelShare], cost_usd: float) -> _Piece:
        """A turn's tokens: as it tells them itself, else the sum of its messages."""
        piece = _Piece()
        piece.model, piece.session_id = self._model, self._session_id
        messages, self._untold = list(self._untold.values()), {}
        for message in messages:
            piece.usage += message.usage
        if told.total_tokens:
            piece.usage = told
        if not models:
            models = {}
            for message in messages:
                models[message.model] = models.get(message.model, ModelShare()) + ModelShare(usage=message.usage)
            if len(models) < 2:
                models = {next(iter(models), self._model): ModelShare(usage=piece.usage, cost_usd=cost_usd)}
        if piece.usage.total_tokens:
            for name, share in models.items():
                self._models[name] = self._models.get(name, ModelShare()) + share
        self._split(piece.usage, messages)
        return piece

    def _split(self, whole: Usage, messages: list[events.UsageUpdated]) -> None:
        """By agent. What a subagent wrote is not told message by message: the rest of its turn is its own."""
        shares: dict[str, Usage] = {}
        for message in messages:
            name = message.agent_id or MAIN
            shares[name] = shares.get(name, Usage()) + message.usage
        rest = whole
        for share in shares.values():
            rest -= share
        if rest.total_tokens:
            others = [name for name in shares if name != MAIN]
            owner = MAIN if not others else others[0] if len(others) == 1 and MAIN in shares else OTHER
            shares[owner] = shares.get(owner, Usage()) + rest
        for name, share in shares.items():
            self._agents[name] = self._agents.get(name, Usage()) + share

    # -- telling ------------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        return self._all().usage

    @property
    def cost_usd(self) -> float:
        return self._all().cost_usd

    def llm_usage(self) -> LlmUsage:
        final = self._final()
        return LlmUsage(
            model=final.model or self._model,
            session_id=final.session_id or self._session_id,
            total_tokens=final.usage.total_tokens,
            cost_label=self._label_now,
            retries=tuple(
                AttemptUsage(model=piece.model, session_id=piece.session_id, reason=reason, **piece.fields())
                for reason, piece in self._retries
            ),
            **final.fields(),
        )

    def totals(self) -> Totals:
        whole = self._all()
        return Totals(
            total_tokens=whole.usage.total_tokens,
            cost_label=self._label,
            attempts=1 + len(self._retries),
            models=dict(self._models),
            agents=dict(self._agents),
            estimated_requests=self._estimated_requests,
            estimated_usd=self._estimated_usd,
            **whole.fields(),
        )

    def _final(self) -> _Piece:
        piece = _Piece()
        piece.add(self._standing)
        piece.add(self._turn)
        for message in self._untold.values():
            piece.usage += message.usage
        return piece

    def _all(self) -> _Piece:
        whole = self._final()
        for piece in self._replaced():
            whole.add(piece)
        return whole

    def _replaced(self) -> list[_Piece]:
        return [piece for _, piece in self._retries]


def label_of(credential: events.CredentialUsed) -> CostLabel:
    return "API-equivalent estimate" if credential.billing == "subscription" else "estimate"


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens,
        "uncached_input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
    }
