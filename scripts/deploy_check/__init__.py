"""Checks deploy/ without a cluster, then checks itself: mistakes are planted, and each must be refused."""
