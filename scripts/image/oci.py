"""Writes, reads and joins OCI image layouts (image-spec 1.1). The same files give the same bytes."""

import hashlib
import io
import json
import os
import pathlib
import tarfile
import zlib

from errors import Refused

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"


def encode(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Layout:
    """A folder with the blobs of one or several images."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def path(self, digest):
        return self.folder / "blobs" / digest.replace(":", "/")

    def create(self):
        (self.folder / "blobs/sha256").mkdir(parents=True)
        (self.folder / "oci-layout").write_bytes(encode({"imageLayoutVersion": "1.0.0"}))

    def add(self, media_type, data, **more):
        """Stores a blob, and returns the descriptor that names it."""
        digest = digest_of(data)
        self.path(digest).write_bytes(data)
        return {"mediaType": media_type, "digest": digest, "size": len(data), **more}

    def read(self, descriptor):
        """A blob, if it is what its descriptor says."""
        data = self.path(descriptor["digest"]).read_bytes()
        if digest_of(data) != descriptor["digest"] or len(data) != descriptor["size"]:
            raise Refused(f"{self.path(descriptor['digest'])} is not what {descriptor['digest']} names")
        return data

    def set_index(self, descriptors):
        (self.folder / "index.json").write_bytes(encode(index(descriptors)))

    def manifests(self):
        """The descriptors of the images, one for each platform."""
        found = []
        for descriptor in json.loads((self.folder / "index.json").read_bytes())["manifests"]:
            inner = descriptor["mediaType"] == INDEX
            found += json.loads(self.read(descriptor))["manifests"] if inner else [descriptor]
        return found

    def layers_size(self, manifest):
        """Bytes of the layers of an image, compressed."""
        return sum(layer["size"] for layer in json.loads(self.read(manifest))["layers"])


def index(descriptors, annotations=None):
    made = {"schemaVersion": 2, "mediaType": INDEX, "manifests": descriptors}
    return {**made, "annotations": annotations} if annotations else made


def entry(path, name, seconds):
    """The header of a file or folder. Owner, time and order do not depend on the machine."""
    info = tarfile.TarInfo(name)
    info.mtime, info.mode = seconds, path.stat().st_mode & 0o7777
    if path.is_dir():
        info.type = tarfile.DIRTYPE
    else:
        info.size = path.stat().st_size
    return info


def pack(folder, seconds):
    """The files of a folder as a tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            info = entry(path, path.relative_to(folder).as_posix(), seconds)
            if info.isdir():
                archive.addfile(info)
            else:
                with path.open("rb") as contents:
                    archive.addfile(info, contents)
    return packed.getvalue()


def compress(data):
    """gzip without a name and a time in its header. Another version of zlib may give other bytes for the same data."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def write(folder, layout, image):
    """Makes a layout with one image of the files in `folder`. `image` is what the configuration says beside them."""
    layer = pack(folder, image["seconds"])
    layout.create()
    packed = layout.add(LAYER, compress(layer))
    config = {
        "created": image["created"],
        "architecture": image["architecture"],
        "os": "linux",
        "config": {
            "User": image["user"],
            "Entrypoint": image["entrypoint"],
            "WorkingDir": "/",
            "Labels": image["labels"],
        },
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
        "history": [{"created": image["created"], "created_by": "scripts/image.sh"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.add(CONFIG, encode(config)),
        "layers": [packed],
        "annotations": image["labels"],
    }
    names = {REF_NAME: image["tag"].rpartition(":")[2], "io.containerd.image.name": f"docker.io/library/{image['tag']}"}
    platform = {"architecture": image["architecture"], "os": "linux"}
    descriptor = layout.add(MANIFEST, encode(manifest), platform=platform, annotations=names)
    layout.set_index([descriptor])
    return descriptor


def join(layouts, joined):
    """Makes a layout whose one entry is an index of the images of several layouts, one for each platform."""
    descriptors, labels = {}, None
    joined.create()
    for layout in layouts:
        for descriptor in layout.manifests():
            data = layout.read(descriptor)
            manifest = json.loads(data)
            key = descriptor["platform"]["architecture"]
            if key in descriptors:
                raise Refused(f"two of the layouts have an image for {key}")
            if labels is not None and labels != manifest["annotations"]:
                raise Refused(f"the images are of different sources: {labels} and {manifest['annotations']}")
            labels = manifest["annotations"]
            for blob in [manifest["config"], *manifest["layers"]]:
                joined.add(blob["mediaType"], layout.read(blob))
            descriptors[key] = joined.add(MANIFEST, data, platform=descriptor["platform"])
    made = encode(index([descriptors[key] for key in sorted(descriptors)], labels))
    descriptor = joined.add(INDEX, made, annotations={REF_NAME: labels["org.opencontainers.image.version"]})
    joined.set_index([descriptor])
    return descriptor


def archive(layout, descriptor, tags, path):
    """One file for `docker load`, `podman load` and `ctr image import`: the layout, with Docker's list in it."""
    manifest = json.loads(layout.read(descriptor))

    def place(blob):
        return layout.path(blob["digest"]).relative_to(layout.folder).as_posix()

    layers = [place(layer) for layer in manifest["layers"]]
    listed = [{"Config": place(manifest["config"]), "RepoTags": tags, "Layers": layers}]
    (layout.folder / "manifest.json").write_bytes(encode(listed))
    path.write_bytes(pack(layout.folder, 0))
    (layout.folder / "manifest.json").unlink()


def unpack(layout, folder):
    """Checks every blob of a layout, and unpacks the image for one platform. Returns its configuration."""
    manifests = layout.manifests()
    for descriptor in manifests:
        manifest = json.loads(layout.read(descriptor))
        config = json.loads(layout.read(manifest["config"]))
        layer = zlib.decompress(layout.read(manifest["layers"][0]), 31)
        if config["rootfs"]["diff_ids"] != [digest_of(layer)]:
            raise Refused(f"the layer of {descriptor['digest']} is not the one that its configuration names")
    if len(manifests) != 1:
        raise Refused(f"{layout.folder} has images for {len(manifests)} platforms: name the layout of one")
    os.makedirs(folder)
    with tarfile.open(fileobj=io.BytesIO(layer)) as packed:
        # The argument `filter` is newer than the Python of Debian 12; an older one ignores this attribute.
        packed.extraction_filter = lambda member, _path: member
        packed.extractall(folder)
    return config
