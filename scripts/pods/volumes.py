"""Volumes of pods as directories: files of ConfigMaps and Secrets, empty directories, and claims that survive the pod."""

import os
import pathlib
import shutil
import stat
import subprocess
import uuid

from . import manifests
from .manifests import Missing, Refused


def _files_of(source, pod, lookup):
    """The files that one source projects: {path: (bytes, mode or None)}."""
    (kind, value), = ((kind, value) for kind, value in source.items() if kind != "name")
    if kind == "downwardAPI":
        return {item["path"]: (manifests.field(pod, item["fieldRef"]["fieldPath"]).encode(), item.get("mode")) for item in value["items"]}
    if kind not in ("configMap", "secret"):
        raise Refused(f"{pod.name}: a volume of {kind} is not emulated")
    name = value.get("name") or value.get("secretName")
    document = lookup("ConfigMap" if kind == "configMap" else "Secret", name)
    if document is None:
        if value.get("optional"):
            return {}
        raise Missing(f"{kind} {name}")
    keys = manifests.contents(document)
    if "items" not in value:
        return {key: (content, None) for key, content in keys.items()}
    files = {}
    for item in value["items"]:
        if item["key"] in keys:
            files[item["path"]] = keys[item["key"]], item.get("mode")
        elif not value.get("optional"):
            raise Missing(f"{kind} {name} with the key {item['key']}")
    return files


def projection(volume, pod, lookup):
    """The files of a volume that is made of objects, and their default mode; None for other volumes."""
    if "projected" in volume:
        files = {}
        for source in volume["projected"].get("sources", []):
            files |= _files_of(source, pod, lookup)
        return files, volume["projected"].get("defaultMode", 0o644)
    for kind in ("configMap", "secret", "downwardAPI"):
        if kind in volume:
            return _files_of({kind: volume[kind]}, pod, lookup), volume[kind].get("defaultMode", 0o644)
    return None


def write_projection(directory, files, default_mode, group):
    """Writes files as the kubelet does: a new directory, then one rename, so that a reader sees all of a change."""
    current = directory / "..data"
    old = os.readlink(current) if current.is_symlink() else None
    if old and {path: (directory / old / path).read_bytes() for path in _relative_files(directory / old)} == {p: c for p, (c, _) in files.items()}:
        return False
    new = f"..{uuid.uuid4().hex[:12]}"
    for path, (content, mode) in files.items():
        target = directory / new / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        # fsGroup lets the group read, whatever the mode says.
        target.chmod((default_mode if mode is None else mode) | (0o440 if group is not None else 0))
        if group is not None:
            os.chown(target, 0, group)
    (directory / new).mkdir(exist_ok=True)
    (directory / "..data_tmp").symlink_to(new)
    os.replace(directory / "..data_tmp", current)
    tops = {path.split("/")[0] for path in files}
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    for top in tops:
        if not (directory / top).is_symlink():
            (directory / top).symlink_to(f"..data/{top}")
    if old:
        shutil.rmtree(directory / old)
    return True


def _relative_files(directory):
    return [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()]


def own_by_group(directory, group):
    """fsGroup of a volume that a pod may write: the group owns everything, and new files belong to it."""
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, -1, group, follow_symlinks=False)
        if not path.is_symlink():
            more = 0o660 | ((stat.S_ISGID | 0o110) if path.is_dir() else 0)
            path.chmod(path.stat().st_mode | more)


class Volumes:
    """The volumes of one pod. Claims lie beside them, in a directory of the cluster."""

    def __init__(self, pod, directory, claims, lookup):
        self.pod, self.directory, self.claims, self.lookup = pod, directory, claims, lookup
        self.group = pod.spec.get("securityContext", {}).get("fsGroup")
        self.sources = {}
        self._mounted = []

    def set_up(self):
        """Makes all volumes. Raises `Missing` as long as an object is not there."""
        for volume in self.pod.spec.get("volumes", []):
            name, path = volume["name"], self.directory / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            files = projection(volume, self.pod, self.lookup)
            if files is not None:
                write_projection(path, *files, self.group)
                self.sources[name] = path, True
            elif "emptyDir" in volume:
                if (volume["emptyDir"] or {}).get("medium") == "Memory" and not os.path.ismount(path):
                    size = int(manifests.quantity(volume["emptyDir"].get("sizeLimit", "64Mi")))
                    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
                    self._mounted.append(path)
                path.chmod(0o777)
                self._give(path)
                self.sources[name] = path, False
            elif "persistentVolumeClaim" in volume:
                self._claim(name, volume["persistentVolumeClaim"]["claimName"], volume["persistentVolumeClaim"].get("readOnly", False))
            else:
                raise Refused(f"{self.pod.name}: the volume {name} is of a kind that is not emulated: {sorted(set(volume) - {'name'})}")

    def _give(self, path):
        if self.group is not None:
            own_by_group(path, self.group)

    def _claim(self, name, claim, read_only):
        if self.lookup("PersistentVolumeClaim", claim) is None:
            raise Missing(f"PersistentVolumeClaim {claim}")
        path = self.claims / self.pod.namespace / claim
        path.mkdir(parents=True, exist_ok=True)
        self._give(path)
        self.sources[name] = path, read_only

    def refresh(self):
        """Writes what has changed in ConfigMaps and Secrets; mounts by subPath keep what they had."""
        for volume in self.pod.spec.get("volumes", []):
            try:
                files = projection(volume, self.pod, self.lookup)
                if files is not None and volume["name"] in self.sources:
                    write_projection(self.directory / volume["name"], *files, self.group)
            except Missing:
                continue  # the kubelet keeps the files of an object that went

    def mounts(self, container, variables):
        """(source, destination, read only) of each mount of a container."""
        found = []
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in self.sources:
                raise Refused(f"{self.pod.name}: there is no volume {mount['name']}")
            source, read_only = self.sources[mount["name"]]
            inner = manifests.expand(mount["subPathExpr"], variables) if "subPathExpr" in mount else mount.get("subPath")
            if inner:
                path = (source / inner).resolve()
                if not path.is_relative_to(source.resolve()):
                    raise Refused(f"{self.pod.name}: the subPath {inner} leads out of its volume")
                if not path.exists():
                    path.mkdir(parents=True)
                    self._give(path)
                source = path
            found.append((source, mount["mountPath"], read_only or mount.get("readOnly", False)))
        return sorted(found, key=lambda mount: len(pathlib.PurePath(mount[1]).parts))

    def tear_down(self):
        for path in self._mounted:
            subprocess.run(["umount", "-l", str(path)], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)
