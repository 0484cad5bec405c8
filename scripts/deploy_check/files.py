"""Files beside the manifests: those of images and of ConfigMaps."""

from .paths import DEPLOY, ROOT
from .refused import refuse_unless


def check_config_maps():
    """Every prompt and every file of the configuration goes into a ConfigMap of the overlays."""
    for directory, pattern in (("prompts", "**/*.md"), ("config", "**/*.yaml")):
        text = (ROOT / directory / "kustomization.yaml").read_text()
        for path in (ROOT / directory).glob(pattern):
            inside = path.relative_to(ROOT / directory).as_posix()
            known = inside == "kustomization.yaml" or inside in text
            refuse_unless(
                known, f"{directory}/kustomization.yaml", f"lacks {inside}", "add it to its configMapGenerator"
            )


def check_dockerfile(text):
    for line in text.splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for source in line.split()[1:-1]:
                there = (ROOT / source).exists()
                refuse_unless(there, "deploy/Dockerfile", f"copies {source}, which is not there", "correct the path")


def check_dockerfiles():
    check_dockerfile((DEPLOY / "Dockerfile").read_text())
