"""Reading and checking a model bundle's folder, without any engine."""
