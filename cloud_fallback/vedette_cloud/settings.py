"""Everything that a server is started with. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vedette_cloud.batching import BatchLimits
    from vedette_cloud.inference_service import RequestLimits
    from vedette_cloud.listening import Address, Certificate
    from vedette_cloud.messages import ChildSpec
    from vedette_cloud.tokens import Tokens


class ServerSettings(NamedTuple):
    """`ray_address` None: Ray is started on this machine; without `with_ray` it is not used at all.

    With Ray, `processes` is the most replicas, and `least` the fewest.
    """

    spec: ChildSpec
    address: Address
    batch: BatchLimits
    request: RequestLimits
    processes: int
    least: int
    tokens: Tokens | None
    per_minute: int | None
    per_day: int | None
    certificate: Certificate | None
    with_ray: bool = False
    ray_address: str | None = None
