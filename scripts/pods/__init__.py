"""A cluster without a cluster: runs rendered Kubernetes manifests as processes in namespaces of this machine."""
