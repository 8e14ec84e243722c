"""The hardened TUF client: what may be believed."""
