"""A classification as an OpenAI chat completion. Pure.

A classifier has no tokens. Each label counts as one, so that `top_logprobs` are the model's scores of whole
labels; the JSON around it counts as one before and one after. A picture counts by the rule of tiles that
OpenAI gives for GPT-4o: 85, and for detail `high` 170 for each tile of 512 pixels, after fitting into
2048 x 2048 and then a short side of 768. Text counts as a token for each four bytes, rounded up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vedette_cloud.chat_request import ChatRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.wire.messages import Label, ModelRef
    from vedette_cloud.chat_request import ChatRequest, Detail

# What OpenAI writes for a token that is as good as impossible.
NO_CHANCE = -9999.0
LOW_DETAIL_TOKENS, TILE_TOKENS, TILE = 85, 170, 512
FIT, SHORT_SIDE = 2048, 768
BYTES_A_TOKEN = 4
_NAMED = 5


class Choice(NamedTuple):
    """The label that is answered, and how likely each one that might have been is, surest first."""

    label: str
    likely: tuple[tuple[str, float], ...]


def choose(ranking: Sequence[Label], labels: tuple[str, ...] | None) -> Choice:
    """The best of the labels that may be answered; classes of one name are one label.

    Scores are made to add up to 1 over what may be answered, as a grammar on a language model does.

    Raises:
        ChatRefusedError: 400: the model knows none of them.
    """
    scores: dict[str, float] = {}
    for entry in ranking:
        scores[entry.label] = scores.get(entry.label, 0.0) + max(0.0, entry.score)
    if labels is not None:
        known = {label: scores[label] for label in labels if label in scores}
        if not known:
            raise ChatRefusedError(
                f"the model has none of these {len(labels)} labels ({', '.join(labels[:3])[:100]}); "
                f"it has {', '.join(list(scores)[:_NAMED])[:200]}, …",
                param="response_format",
                code="unknown_labels",
            )
        scores = known
    total = math.fsum(scores.values())
    likely = sorted(scores.items(), key=lambda pair: -pair[1])
    shares = tuple((label, score / total if total > 0 else 1 / len(likely)) for label, score in likely)
    return Choice(shares[0][0], shares)


def picture_tokens(width: int, height: int, detail: Detail) -> int:
    """What a picture counts as; `auto` is `low` for what one tile holds."""
    if detail == "low" or (detail == "auto" and max(width, height) <= TILE):
        return LOW_DETAIL_TOKENS
    scale = min(1.0, FIT / max(width, height))
    scale *= min(1.0, SHORT_SIDE / (min(width, height) * scale))
    tiles = math.prod(max(1, math.ceil(round(side * scale) / TILE)) for side in (width, height))
    return LOW_DETAIL_TOKENS + TILE_TOKENS * tiles


def build_completion(
    request: ChatRequest,
    choice: Choice,
    model: ModelRef,
    *,
    size: tuple[int, int],
    id_: str,
    created_utc_s: int,
) -> dict[str, Any]:
    """The completion as JSON values.

    Args:
        request: What was asked.
        choice: What is answered.
        model: Who answers.
        size: Width and height of the picture.
        id_: Of this completion.
        created_utc_s: Seconds since 1970.
    """
    tokens = _tokens(request.field, choice.label)
    cut = request.max_tokens is not None and request.max_tokens < len(tokens)
    given = tokens[: request.max_tokens] if cut else tokens
    prompt = picture_tokens(*size, request.detail) + -(-request.text_bytes // BYTES_A_TOKEN)
    return {
        "id": id_,
        "object": "chat.completion",
        "created": created_utc_s,
        "model": model.name,
        "system_fingerprint": f"{model.version}-{model.sha256[:12]}",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(given), "refusal": None},
                "logprobs": _logprobs(request, choice, given),
                "finish_reason": "length" if cut else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": len(given),
            "total_tokens": prompt + len(given),
        },
    }


def _tokens(field: str | None, label: str) -> list[str]:
    if field is None:
        return [label]
    name, text = msgspec.json.encode(field).decode(), msgspec.json.encode(label).decode()
    return [f'{{{name}:"', text[1:-1], '"}']


def _logprobs(request: ChatRequest, choice: Choice, given: Sequence[str]) -> dict[str, Any] | None:
    if request.top_logprobs is None:
        return None
    at = 0 if request.field is None else 1
    content = []
    for position, token in enumerate(given):
        if position == at:
            entry = _logprob(token, choice.likely[0][1])
            top = [_logprob(label, share) for label, share in choice.likely[: request.top_logprobs]]
        else:  # the form of the answer leaves no choice
            entry = _logprob(token, 1.0)
            top = [entry] if request.top_logprobs else []
        content.append({**entry, "top_logprobs": top})
    return {"content": content, "refusal": None}


def _logprob(token: str, share: float) -> dict[str, Any]:
    log = max(NO_CHANCE, math.log(share)) if share > 0 else NO_CHANCE
    return {"token": token, "logprob": log, "bytes": list(token.encode())}
