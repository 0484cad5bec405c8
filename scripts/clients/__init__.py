"""Public SDKs against an edge: `make clients`."""
