"""Which camera is served next. Pure: facts in, a choice out."""
