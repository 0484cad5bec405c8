"""Runs every check of deploy/, or writes what is generated there: `python -m deploy_check [manifests]`."""

import argparse
import sys

from . import dashboards, files, manifests, matrix, monitoring, outside, package, parity, planted, render, values_schema
from .paths import CHART, OVERLAYS
from .refused import Refused

# The base is rendered with this name of its nats-servers.
KUSTOMIZE = {"nats": {"fullnameOverride": "nats"}, "smokeTest": {"enabled": False}}


def check_overlays():
    for directory in sorted(OVERLAYS.iterdir()):
        documents = render.render_overlay(directory)
        matrix.check(documents, is_production=directory.name == "prod")
        chart = render.render_chart(values=KUSTOMIZE, files=[CHART / f"values-{directory.name}.yaml"])
        parity.check(f"overlay {directory.name}", documents, chart)
        print(f"ok  overlay {directory.name}: {len(documents)} manifests, the same as the chart's")
    outside.check()
    print("ok  an overlay of one's own merges its agents.yaml, in a namespace of its own")


def check(verbose):
    files.check_dockerfiles()
    files.check_config_maps()
    values_schema.check()
    files.check_nats_values(render.render_chart())
    print("ok  the Dockerfile's paths; configuration and prompts in ConfigMaps; the values for the chart of NATS")
    render.lint()
    for setup in matrix.SETUPS:
        print(f"ok  chart with {setup.name()}: {matrix.check_setup(setup)} manifests")
    package.check()
    print("ok  the packaged chart is the same, and takes rules and dashboards of deploy/monitoring")
    alerts, boards = monitoring.check()
    print(f"ok  {alerts} alerts, each with a page, and {boards} dashboards name metrics and labels that exist")
    print(f"ok  {manifests.check()} files of deploy/kubernetes/base are as the chart renders them")
    check_overlays()
    print(f"ok  {planted.plant(verbose)} planted mistakes are refused")


def main():
    parser = argparse.ArgumentParser(prog="deploy-check", description=__doc__)
    parser.add_argument("task", nargs="?", choices=["check", "manifests"], default="check")
    parser.add_argument("--verbose", action="store_true", help="also print what each planted mistake is refused with")
    arguments = parser.parse_args()
    if arguments.task == "manifests":
        values_schema.write()
        print("deploy/helm/ailoop/values.schema.json: 1 file")
        print(f"deploy/kubernetes/base: {manifests.write()} files")
        print(f"deploy/monitoring/dashboards: {dashboards.write()} files")
    else:
        check(arguments.verbose)


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"error: {refused}")
