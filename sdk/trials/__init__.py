"""Runs the tests of both SDKs, and every example, against one fleet with a scripted model."""
