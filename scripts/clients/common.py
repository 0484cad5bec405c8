"""What the checks share."""

from openai import OpenAI

from .fleet import Failed


def expect(holds, seen):
    """Fails with what was seen."""
    if not holds:
        raise Failed(f"unexpected: {seen!r}")
    return seen


def client(fleet, key=None, retries=2):
    """The SDK as its users make it."""
    return OpenAI(base_url=f"{fleet.url}/openai/v1", api_key=key or fleet.key, max_retries=retries)
