"""Model updates: the update machine, the store, fetching, decoding, probing."""
