"""The words for why a frame goes to the large model, and for what becomes of it. Pure."""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """Why the large model is asked."""

    UNCERTAIN = "uncertain"  # the gate does not trust the local answer
    AUDIT = "audit"  # drawn at random, before the local answer was looked at


class OutcomeWord(str, Enum):
    """How an escalation ended; each has exactly one."""

    ANSWERED = "answered"  # the large model says something else
    AGREED = "agreed"  # it says the same
    DECLINED = "declined"  # it was not asked, on purpose; `cause` is a DeclineCause
    EXPIRED = "expired"  # its answer was not there in time
    FAILED = "failed"  # it was asked and gave no usable answer; `cause` is a CloudFault


class DeclineCause(str, Enum):
    """The frame was unsure, and the large model was not asked."""

    BUDGET = "budget"  # nothing left to spend: the promise does not hold for this one ("unmet")
    BUSY = "busy"  # every place for a frame on its way was taken ("unmet")
    COOL_DOWN = "cool_down"  # this scene was asked about a moment ago
    PRIVACY = "privacy"  # what may not leave the box is in it
    OFFLINE = "offline"  # there is no way to the large model now; it may see the frame later ("unmet")
    TOO_OLD = "too_old"  # it waited too long for a way to the large model ("unmet")
    URGENT = "urgent"  # its camera never waits, and no answer could be there in time
    UNSUPPORTED = "unsupported"  # a tensor, or a task that no large model can be asked about
    STOPPED = "stopped"  # the process that asks ended with the frame in hand ("unmet")


# Of these the guarantee says nothing: what was to be escalated was answered locally.
UNMET = frozenset(
    {
        DeclineCause.BUDGET,
        DeclineCause.BUSY,
        DeclineCause.OFFLINE,
        DeclineCause.TOO_OLD,
        DeclineCause.STOPPED,
    }
)


class CloudFault(str, Enum):
    """Why the large model gave no usable answer."""

    DEADLINE = "deadline"  # no complete answer within the whole time allowed, however it dripped
    CONNECT = "connect"  # no connection: name, route, refused, TLS
    BROKEN = "broken"  # the connection ended in the middle, or what came is no HTTP
    BUSY = "busy"  # 429 or 503: it has too much to do
    QUOTA = "quota"  # 429 insufficient_quota: nothing will help but money; asking stops
    REJECTED = "rejected"  # 400, 404, 413, 415, 422: it will never like this request
    FORBIDDEN = "forbidden"  # 401, 403: the key is wrong
    SERVER = "server"  # 5xx
    TOO_LARGE = "too_large"  # the answer passes the bound on its size
    MALFORMED = "malformed"  # not the JSON that was asked for
    REFUSED = "refused"  # the model declines to answer, or its filter does
    CUT = "cut"  # its answer ended at the limit of tokens
    UNMAPPED = "unmapped"  # it named a label that the bundle does not know; the local one is kept
    BREAKER = "breaker"  # it failed too often lately, so it was not asked


class Guarantee(str, Enum):
    """What the gate's threshold promises."""

    NONE = "none"  # uncalibrated, or a plain threshold
    AGREEMENT = "agreement"  # accuracy of the cascade >= accuracy of the large model - epsilon
    SELECTIVE = "selective"  # among answers kept locally at most epsilon differ from the large model's
