"""Every field must be known and of the right type, in every version of Kubernetes; configuration files too."""

import functools
import json

import jsonschema
import kubernetes_validate
import yaml

from . import crds
from .facts import KUBERNETES_VERSIONS
from .paths import ROOT
from .refused import Refused, name_of, refuse_unless
from .workloads import of_kind

BUILTIN_GROUPS = (
    "v1",
    "apps/v1",
    "batch/v1",
    "policy/v1",
    "autoscaling/v2",
    "networking.k8s.io/v1",
    "scheduling.k8s.io/v1",
)


def place_in(document, path):
    return f"{name_of(document)} at {'.'.join(map(str, path)) or 'the top'}"


def check(documents):
    for document in documents:
        custom = crds.schema_of(document)
        if custom:
            for error in jsonschema.Draft202012Validator(custom).iter_errors(document):
                remedy = "write it as the kind's definition has it (scripts/deploy_check/crds.py)"
                raise Refused(place_in(document, error.path), error.message[:300], remedy)
        else:
            check_builtin(document)


# Planted mistakes are in copies, of which all but one document is as it was.
ACCEPTED = set()


def check_builtin(document):
    text = json.dumps(document, sort_keys=True, default=str)
    if text in ACCEPTED:
        return
    known = document.get("apiVersion") in BUILTIN_GROUPS
    remedy = "correct the apiVersion, or add a schema to scripts/deploy_check/crds.py"
    refuse_unless(known, name_of(document), f"{document.get('apiVersion')} is not known", remedy)
    for version in KUBERNETES_VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            remedy = f"write it as Kubernetes {version} has it (kubectl explain)"
            raise Refused(place_in(document, error.path), error.message[:300], remedy) from None
        except kubernetes_validate.SchemaNotFoundError as error:
            raise Refused(name_of(document), str(error), remedy) from None
    ACCEPTED.add(text)


@functools.cache
def schema_of_file(name):
    path = ROOT / "docs/reference/schemas" / f"{name.removesuffix('.yaml')}.schema.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text())) if path.exists() else None


def check_configuration(documents):
    """Files of the configuration in ConfigMaps are what ailoop accepts."""
    for document in of_kind(documents, "ConfigMap"):
        for file, text in (document.get("data") or {}).items():
            schema = schema_of_file(file)
            if schema is None:
                continue
            place = f"{name_of(document)}, {file}"
            try:
                content = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise Refused(place, f"is no YAML: {error}", "correct the file") from None
            for error in schema.iter_errors(content):
                where = ".".join(map(str, error.path)) or "the top"
                raise Refused(f"{place} at {where}", error.message[:300], "correct it; `ailoop config check` says more")
