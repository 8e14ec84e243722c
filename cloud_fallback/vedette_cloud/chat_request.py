"""What is taken of OpenAI's chat completions: one picture, and a choice among labels. Pure.

Source: OpenAI, API reference, "Create chat completion", and "Structured model outputs". Anything that this
server cannot do is refused by its name; options that change nothing for a classifier, such as `temperature`,
are taken and do nothing. The text is not read: a classifier has no words.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from vedette.api.refusal import RequestRefusedError

MAX_LABELS = 10_000
_DATA_URL = re.compile(r"data:image/(?:jpeg|jpg|png|webp);base64,", re.IGNORECASE)
_URL_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
Detail = Literal["auto", "low", "high"]


class ChatRefusedError(RequestRefusedError):
    """A refusal that names the field, as OpenAI's errors do."""

    def __init__(self, cause: str, *, param: str | None, code: str | None = None, status: int = 400) -> None:
        super().__init__(status, cause)
        self.param = param
        self.code = code


class _ImageUrl(msgspec.Struct, frozen=True):
    url: str
    detail: Detail = "auto"


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    image_url: _ImageUrl | None = None


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | Annotated[list[_Part], Meta(max_length=256)] | None = None


class _JsonSchema(msgspec.Struct, frozen=True):
    name: str = ""
    schema: dict[str, Any] = {}


class _ResponseFormat(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


class _Chat(msgspec.Struct, frozen=True):
    model: str
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=256)]
    response_format: _ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: int | None = None
    stream: bool | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None


class ChatRequest(NamedTuple):
    """`field` is the name that the label is answered under, None: the label itself is the answer.

    `labels` are those that may be answered, None: every class of the model.
    """

    model: str
    picture: bytes
    detail: Detail
    text_bytes: int
    field: str | None
    labels: tuple[str, ...] | None
    top_logprobs: int | None
    max_tokens: int | None


def parse_chat(body: bytes) -> ChatRequest:
    """Read a request.

    Raises:
        ChatRefusedError: 400: it is none, or asks for what a classifier cannot do.
    """
    try:
        chat = _CHATS.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ChatRefusedError(f"the request is not a chat completion: {error}", param=None) from error
    _check_possible(chat)
    parts = [part for message in chat.messages for part in _parts(message)]
    pictures = [part.image_url for part in parts if part.type == "image_url"]
    if len(pictures) != 1 or pictures[0] is None:
        raise ChatRefusedError(
            f"one picture is taken, {len(pictures)} were given; send one part of type image_url",
            param="messages",
        )
    field, labels = _choice(chat.response_format)
    return ChatRequest(
        chat.model,
        _picture(pictures[0].url),
        pictures[0].detail,
        sum(len(part.text.encode()) for part in parts),
        field,
        labels,
        (chat.top_logprobs or 0) if chat.logprobs else None,
        chat.max_completion_tokens or chat.max_tokens,
    )


_CHATS = msgspec.json.Decoder(_Chat)


def _check_possible(chat: _Chat) -> None:
    impossible = (
        (
            "stream",
            bool(chat.stream),
            "this server does not stream: an answer is one label; send stream: false",
        ),
        ("n", chat.n not in {None, 1}, "this server gives one answer; send n: 1 or leave it out"),
        ("tools", bool(chat.tools), "this server calls no tools; leave tools out"),
        ("functions", bool(chat.functions), "this server calls no functions; leave functions out"),
        (
            "top_logprobs",
            chat.top_logprobs is not None and not chat.logprobs,
            "top_logprobs needs logprobs: true",
        ),
    )
    for param, asked, cause in impossible:
        if asked:
            raise ChatRefusedError(cause, param=param, code="unsupported_parameter")


def _parts(message: _Message) -> list[_Part]:
    if message.content is None:
        return []
    if isinstance(message.content, str):
        return [_Part("text", message.content)]
    unknown = [part.type for part in message.content if part.type not in {"text", "image_url"}]
    if unknown:
        raise ChatRefusedError(
            f"a part of type {unknown[0][:32]!r} is not taken; text and image_url are", param="messages"
        )
    return message.content


def _picture(url: str) -> bytes:
    """The picture's file; nothing is ever fetched for a client."""
    prefix = _DATA_URL.match(url)
    if prefix is None:
        scheme = _URL_SCHEME.match(url)
        if scheme is not None and scheme[0].lower() != "data:":
            cause = f"pictures are not fetched from elsewhere ({scheme[0][:16]}…)"
        else:
            cause = "the picture is no data URL of a JPEG, PNG or WebP"
        raise ChatRefusedError(
            f"{cause}; send data:image/jpeg;base64,…", param="messages", code="invalid_image_url"
        )
    try:
        return base64.b64decode(url[prefix.end() :].encode("ascii"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ChatRefusedError(
            "the picture's data URL is not Base64", param="messages", code="invalid_image_url"
        ) from error


def _choice(wanted: _ResponseFormat | None) -> tuple[str | None, tuple[str, ...] | None]:
    """The field of the answer, and the labels that it may have."""
    if wanted is None or wanted.type == "text":
        return None, None
    if wanted.type == "json_object" or wanted.json_schema is None:
        if wanted.type == "json_schema":
            raise _bad_schema("it has no json_schema")
        return "label", None
    schema = wanted.json_schema.schema
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or len(properties) != 1:
        raise _bad_schema("an object with one property, the label, is what a classifier can fill")
    ((field, rule),) = properties.items()
    if not isinstance(rule, dict) or rule.get("type", "string") != "string":
        raise _bad_schema(f"the property {str(field)[:64]!r} is no string")
    enum = rule.get("enum")
    if enum is None:
        return field, None
    if (
        not isinstance(enum, list)
        or not 0 < len(enum) <= MAX_LABELS
        or not all(isinstance(e, str) for e in enum)
    ):
        raise _bad_schema(f"enum has 1 to {MAX_LABELS} strings")
    return field, tuple(dict.fromkeys(enum))


def _bad_schema(cause: str) -> ChatRefusedError:
    return ChatRefusedError(f"response_format: {cause}", param="response_format", code="invalid_json_schema")
