"""Runs Prometheus with the shipped rules beside a fleet, and makes the condition of each alert true."""
