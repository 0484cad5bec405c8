"""Tests of what needs neither root nor a cluster. `make deploy-check` runs them."""
