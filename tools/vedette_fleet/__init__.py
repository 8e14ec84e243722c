"""The operator's side: keys, releases, deltas, rollouts."""
