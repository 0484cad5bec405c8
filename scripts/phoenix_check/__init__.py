"""Runs a fleet that sends its spans to Arize Phoenix, kills parts of it, and asks Phoenix what it has."""
