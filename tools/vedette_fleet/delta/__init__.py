"""Making deltas: finds the tensors of two models, pairs them, predicts one from the other, packs the rest."""

from vedette_fleet.delta.encode import encode_delta, encode_full

__all__ = ["encode_delta", "encode_full"]
