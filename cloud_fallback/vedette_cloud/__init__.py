"""A reference server for a large model, which devices ask when they are unsure."""
