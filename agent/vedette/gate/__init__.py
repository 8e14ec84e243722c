"""When to trust the small model: scores, thresholds with a guarantee, budgets, audits, drift. Pure."""
