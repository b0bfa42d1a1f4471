"""Whether an answer fits what was asked. Pure: it is checked before it counts, so that a wrong one costs nothing."""

from __future__ import annotations

import msgspec

from leadrope import errors
from leadrope.core.events import QuestionRequested
from leadrope.runs.approvals import forms
from leadrope.runs.approvals.requests import CallRequest, StepRequest, request_of
from leadrope.runs.records.values import Approval
from leadrope.runtime.gate.approvers import Answer


def checked(approval: Approval, answer: Answer) -> Answer:
    """The answer as it is stored, with the defaults of a form; BadValue or StaleAnswer where it cannot be used."""
    if answer.fingerprint not in (None, approval.fingerprint):
        raise stale(approval.id)
    match request_of(approval):
        case CallRequest() as asked:
            return _to_call(asked, approval, answer)
        case QuestionRequested() as asked:
            return _to_question(asked, answer)
        case StepRequest() as asked:
            return _to_step(asked, answer)


def stale(approval_id: str) -> errors.StaleAnswer:
    return errors.StaleAnswer(
        f"{approval_id} has changed since it was shown; the answer was not used, and it is still pending",
        hint=f"Look at it again: `leadrope approvals show {approval_id}`.",
    )


def not_open(approval: Approval) -> errors.WrongState:
    by = f" by {approval.by}" if approval.by else ""
    why = f" ({approval.reason})" if approval.state == "withdrawn" and approval.reason else ""
    return errors.WrongState(
        f"{approval.id} is no longer open: {approval.state}{by}{why}", hint="The first answer counts."
    )


def _to_call(asked: CallRequest, approval: Approval, answer: Answer) -> Answer:
    _refuse(answer, "choice", "answers", what="a tool call")
    if answer.edited is not None and not answer.approved:
        raise errors.BadValue("edited", "a denied call cannot be edited")
    if answer.edited is not None and not asked.is_editable:
        raise errors.BadValue("edited", "this step can only run the call as it is", hint="Approve it, or deny it.")
    if approval.outermost_id and answer.scope != "once":
        raise errors.BadValue("scope", "a step has one call; there are no later ones that it could cover")
    if answer.pattern is None:
        return answer
    if not answer.approved or answer.edited is not None:
        raise errors.BadValue("pattern", "it is granted together with the call as it was asked, not otherwise")
    if not answer.pattern or answer.pattern != asked.pattern:
        offered = f"Offered is {asked.pattern}." if asked.pattern else "None is offered for this call."
        raise errors.BadValue("pattern", f"{answer.pattern!r} was not offered", hint=offered)
    return answer


def _to_question(asked: QuestionRequested, answer: Answer) -> Answer:
    what = f"a {asked.kind}"
    _refuse(answer, "edited", "choice", "pattern", what=what)
    if not answer.approved or asked.kind == "plan":
        _refuse(answer, "answers", what="a denial" if not answer.approved else what)
        return answer
    questions = [question.question for question in asked.questions]
    for question, text in answer.answers.items():
        if question not in questions:
            raise errors.BadValue("answers", f"{question!r} was not asked", hint="See `leadrope approvals show`.")
        if not isinstance(text, str) or not text:
            raise errors.BadValue("answers", f"the answer to {question!r} is not a text")
    if missing := [question for question in questions if question not in answer.answers]:
        raise errors.BadValue("answers", f"the answer to {missing[0]!r} is missing")
    return answer


def _to_step(asked: StepRequest, answer: Answer) -> Answer:
    _refuse(answer, "edited", "pattern", what="a step")
    if not answer.approved:
        _refuse(answer, "choice", "answers", what="a denial")
        return answer
    if answer.choice not in (asked.choices or ("",)):
        offered = f"Choose one of: {', '.join(asked.choices)}." if asked.choices else "The answer is yes or no."
        what = f"{answer.choice!r} is not offered" if answer.choice else "is missing"
        raise errors.BadValue("choice", what, hint=offered)
    if not asked.fields:
        _refuse(answer, "answers", what="a step without fields")
        return answer
    return msgspec.structs.replace(answer, answers=forms.values_of(asked.fields, answer.answers))


def _refuse(answer: Answer, *fields: str, what: str) -> None:
    for field in fields:
        if getattr(answer, field):
            raise errors.BadValue(field, f"{what} takes none", hint="See `leadrope approvals show`.")
