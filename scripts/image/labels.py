"""The labels of the image, which say what it is and where it comes from."""


def labels(build, source):
    """`build` is what `ailoop version --json` prints, `source` the address of the repository or empty."""
    made = {
        "title": "ailoop",
        "description": "AI agent loops over NATS JetStream",
        "licenses": "Apache-2.0",
        "version": build["version"],
        "revision": build["commit"],
        "created": build["commit_date"],
        "source": source,
    }
    return {f"org.opencontainers.image.{name}": value for name, value in made.items() if value}
