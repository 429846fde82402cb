"""Answer caches measured: what they find, and what they find wrongly."""
