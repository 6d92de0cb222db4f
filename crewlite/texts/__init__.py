"""Texts for people: templates, messages, tracebacks; and secrets, which are masked in them."""
