"""Measures ailoop beside other durable runtimes that do the same work on the same machine."""
