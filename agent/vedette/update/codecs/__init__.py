"""Decoders of the codecs that a release may use; `decode` is the way in."""
